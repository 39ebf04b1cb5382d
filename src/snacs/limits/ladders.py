"""Ladders: the ways to share a target out among layers.

Every way of allocating is a ladder: a sequence of steps along which no layer's limit ever falls.
Pruning more means climbing higher, so whatever is chosen, limits are nested and monotone in the
target. Step 0 prunes nothing.
"""

from __future__ import annotations

import bisect
from collections.abc import Mapping
from typing import Protocol

import numpy as np

from snacs.config import Config, Goal
from snacs.connections import count_at
from snacs.errors import InputError
from snacs.limits.task import Task, check_name
from snacs.values import Curve, FloatArray, IntArray

TRUST = 0.7
"""Of the one threshold in a tempered allocation; chosen on ResNet56 (docs/research.md)."""
_CLOSE = 1e-9  # 0.99 · 0.9 is not 0.891 in floating point, but means it


class Ladder(Protocol):
    """Steps 0 … ``steps``; no limit falls from one to the next."""

    steps: int

    def limits(self, step: int) -> IntArray:
        """Connections that may go of every layer, caps applied."""

    def first_step(self, index: int, count: int) -> int:
        """The first step at which layer ``index`` may lose ``count``; ``steps + 1`` if none."""

    def threshold(self, step: int) -> float | None:
        """The SVM accuracy that the step stands for, if it stands for one."""


def make_ladder(task: Task, curves: Mapping[str, Curve], config: Config) -> Ladder:
    """The ladder of ``config.allocation``."""
    if config.allocation == "svm":
        return SvmLadder(task, curves, config)
    if config.allocation == "uniform":
        return UniformLadder(task)
    if config.allocation == "global":
        return GlobalLadder(task)
    if config.allocation == "tempered":
        return TemperedLadder(task)
    return ManualLadder(task, config.limits)


def last_step(ladder: Ladder, goal: Goal) -> int:
    """How far to climb without a target: to the tolerated accuracy, or all the way."""
    if goal.tolerance is not None and isinstance(ladder, SvmLadder):
        return ladder.step_at(1.0 - goal.tolerance)
    return ladder.steps


def read(curve: Curve, config: Config) -> FloatArray:
    """A curve as it is compared with the common threshold; NaN stays NaN.

    Accuracies above ``config.cap`` count as the cap. The relative reading divides by the unpruned
    layer's own accuracy, capped too, and does not reward a layer for reading better when pruned.
    """
    accuracy = np.minimum(curve.accuracy, config.cap)
    if config.reading == "absolute":
        return accuracy
    base = min(curve.base, config.cap)
    return np.minimum(accuracy / base, 1.0) if base > 0 else np.where(accuracy >= 0, 1.0, accuracy)


class SvmLadder:
    """One SVM accuracy α for all layers, moved from 1 down.

    γ(l) is the highest level whose accuracy is at least α; none: 0. A step raises one layer to
    its next level; layers that rise at the same α do so in order of the forward pass.
    """

    def __init__(self, task: Task, curves: Mapping[str, Curve], config: Config) -> None:
        rises: list[tuple[float, int, int]] = []
        for index, layer in enumerate(task.layers):
            if layer.name not in curves:
                raise InputError(f"There is no accuracy curve for the layer {layer.name!r}.")
            curve = curves[layer.name]
            highest = -np.inf
            for level, value in zip(curve.levels[::-1], read(curve, config)[::-1], strict=True):
                # Only an accuracy above those of all higher levels ever decides a limit.
                if value > highest:
                    highest = float(value)
                    count = min(count_at(float(level), layer.connections), int(task.caps[index]))
                    rises.append((-highest, index, count))
        rises.sort()
        self.steps = len(rises)
        self._width = len(task.layers)
        self._values = np.array([-value for value, _, _ in rises])
        self._layers = np.array([index for _, index, _ in rises], dtype=np.intp)
        self._counts = np.array([count for _, _, count in rises], dtype=np.int64)

    def limits(self, step: int) -> IntArray:
        result = np.zeros(self._width, dtype=np.int64)
        np.maximum.at(result, self._layers[:step], self._counts[:step])
        return result

    def first_step(self, index: int, count: int) -> int:
        if count <= 0:
            return 0
        enough = np.flatnonzero((self._layers == index) & (self._counts >= count))
        return int(enough[0]) + 1 if len(enough) else self.steps + 1

    def threshold(self, step: int) -> float | None:
        return float(self._values[step - 1]) if step > 0 else 1.0

    def step_at(self, threshold: float) -> int:
        """The highest step whose accuracy is still at least ``threshold``."""
        return int(np.count_nonzero(self._values >= threshold - _CLOSE))


class UniformLadder:
    """The same fraction of every layer, in steps of a millionth; capped layers stop rising."""

    steps = 1_000_000

    def __init__(self, task: Task) -> None:
        self._sizes, self._caps = task.sizes, task.caps

    def limits(self, step: int) -> IntArray:
        return np.minimum(step * self._sizes // self.steps, self._caps)

    def first_step(self, index: int, count: int) -> int:
        if count > self._caps[index]:
            return self.steps + 1
        return int(-(-count * self.steps // int(self._sizes[index])))

    def threshold(self, step: int) -> float | None:  # noqa: ARG002
        return None


class GlobalLadder:
    """One score threshold over all layers, each score a step; a layer stops at its floor.

    Without the floor whole layers die long before the others are touched, and the network with
    them.
    """

    def __init__(self, task: Task) -> None:
        self._ordered, self._caps = task.ordered, task.caps
        self.values: FloatArray = np.unique(np.concatenate(task.ordered))
        self.steps = len(self.values)

    def limits(self, step: int) -> IntArray:
        if step == 0:
            return np.zeros(len(self._caps), dtype=np.int64)
        value = self.values[step - 1]
        counts = [np.searchsorted(scores, value, side="right") for scores in self._ordered]
        return np.minimum(np.array(counts, dtype=np.int64), self._caps)

    def first_step(self, index: int, count: int) -> int:
        if count <= 0:
            return 0
        if count > self._caps[index]:
            return self.steps + 1
        return int(np.searchsorted(self.values, self._ordered[index][count - 1])) + 1

    def threshold(self, step: int) -> float | None:  # noqa: ARG002
        return None


class TemperedLadder:
    """Between the same fraction of every layer and one score threshold over all of them.

    One threshold knows which layers carry little, but takes nearly all of the weakest ones; the
    same fraction of every layer knows nothing. At every step a layer may lose the mean of the two,
    weighted by :data:`TRUST`. Scores have to mean the same in every layer.
    """

    def __init__(self, task: Task) -> None:
        self._whole = GlobalLadder(task)
        self._task, self.steps = task, self._whole.steps

    def limits(self, step: int) -> IntArray:
        if step >= self.steps:
            return self._task.caps.copy()
        task, ours = self._task, self._whole.limits(step)
        share = task.worth(ours) / task.worth(task.sizes)
        mixed = TRUST * ours + (1 - TRUST) * share * task.sizes
        return np.minimum(np.floor(mixed + _CLOSE).astype(np.int64), task.caps)

    def first_step(self, index: int, count: int) -> int:
        steps = range(self.steps + 1)
        return bisect.bisect_left(steps, count, key=lambda step: int(self.limits(step)[index]))

    def threshold(self, step: int) -> float | None:  # noqa: ARG002
        return None


class ManualLadder:
    """Limits by name, in one step; layers that are not named are left alone."""

    steps = 1

    def __init__(self, task: Task, limits: Mapping[str, float]) -> None:
        self._counts = np.zeros(len(task.layers), dtype=np.int64)
        for name, limit in limits.items():
            check_name(task.structure, name, "limits")
            index = task.index(name)
            count = count_at(limit, task.layers[index].connections)
            self._counts[index] = min(count, int(task.caps[index]))

    def limits(self, step: int) -> IntArray:
        return self._counts.copy() if step > 0 else np.zeros_like(self._counts)

    def first_step(self, index: int, count: int) -> int:
        if count <= 0:
            return 0
        return 1 if count <= self._counts[index] else 2

    def threshold(self, step: int) -> float | None:  # noqa: ARG002
        return None


class ScoreThreshold:
    """δ: connections that score above it stay, whatever the limit.

    Given as a number, or taken from a named layer: the highest score that goes at that layer's
    own limit. Taken from a layer it rises with the limit, so counts stay monotone.
    """

    def __init__(self, task: Task, config: Config) -> None:
        self._ordered = task.ordered
        self._value = config.threshold
        self._index: int | None = None
        if config.threshold_from is not None:
            check_name(task.structure, config.threshold_from, "threshold_from")
            self._index = task.index(config.threshold_from)

    @property
    def active(self) -> bool:
        return self._value is not None or self._index is not None

    def at(self, limits: IntArray) -> float | None:
        """δ in force at these limits; −inf (nothing goes) while the named layer's limit is 0."""
        if self._index is None:
            return self._value
        count = int(limits[self._index])
        return float(self._ordered[self._index][count - 1]) if count > 0 else float("-inf")

    def in_force(self, ladder: Ladder, step: int) -> float | None:
        """δ at a step; of a global ladder without a δ, the score that the step stands for."""
        if isinstance(ladder, GlobalLadder) and not self.active:
            return float(ladder.values[step - 1]) if step > 0 else None
        return self.at(ladder.limits(step))

    def hold(self, limits: IntArray) -> IntArray:
        """Counts: the limits, less what scores above δ."""
        value = self.at(limits)
        if value is None:
            return limits
        allowed = [np.searchsorted(scores, value, side="right") for scores in self._ordered]
        return np.minimum(limits, np.array(allowed, dtype=np.int64))

    def first_step(self, ladder: Ladder, score: float) -> int:
        """The first step of a ladder at which δ is at least ``score``."""
        if self._index is not None:
            below = int(np.searchsorted(self._ordered[self._index], score, side="left"))
            if below >= len(self._ordered[self._index]):
                return ladder.steps + 1
            return ladder.first_step(self._index, below + 1)
        return 0 if self._value is None or score <= self._value else ladder.steps + 1

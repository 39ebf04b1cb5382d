"""What an allocation starts from, and what it returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from snacs.config import Config, Goal
from snacs.connections import check_scores, most_prunable, prune_order
from snacs.errors import InputError, TargetError, closest
from snacs.values import BoolArray, FloatArray, IntArray, Layer, Structure


@dataclass(frozen=True, eq=False)
class Allocation:
    """How much of each prunable layer goes.

    Attributes
    ----------
    counts : connections that go, by layer.
    limits : γ, the fraction of the layer's connections (granularity "filter": of its filters) up
        to which it may be pruned. Above ``counts`` only where a score threshold holds some back.
    threshold : α, the SVM accuracy that all curves were cut at, absolute or relative as read.
    delta : δ, the score above which connections stay; None if there is none.
    reached : fraction of the budget (all weights or MACs, kept layers included) that goes.
    removed : filters that go, by layer (c_out,), with granularity "filter"; else None.
    """

    counts: dict[str, int]
    limits: dict[str, float]
    threshold: float | None
    delta: float | None
    reached: float
    removed: dict[str, BoolArray] | None = field(default=None)


@dataclass(frozen=True, eq=False)
class Task:
    """Prunable layers with their sorted scores and the most that may go of each.

    ``units`` is what one connection is worth in the budget, ``total`` the whole budget: all
    Conv and Linear weights, or all multiply-adds, of prunable and of kept layers.
    """

    structure: Structure
    layers: tuple[Layer, ...]
    ordered: tuple[FloatArray, ...]
    caps: IntArray
    units: IntArray
    total: int

    @property
    def sizes(self) -> IntArray:
        return np.array([layer.connections for layer in self.layers], dtype=np.int64)

    def index(self, name: str) -> int:
        return next(i for i, layer in enumerate(self.layers) if layer.name == name)

    def worth(self, counts: IntArray) -> int:
        """Budget that goes with these counts."""
        return int(np.dot(counts, self.units))


def unit_of(layer: Layer, budget: str) -> int:
    """What one connection of a layer is worth: its weights, or its multiply-adds per image."""
    return layer.kernel * (layer.positions if budget == "macs" else 1)


def check_all(
    structure: Structure, scores: Mapping[str, FloatArray], protected: Mapping[str, BoolArray]
) -> None:
    """Raise unless there is something to prune and every prunable layer has usable scores."""
    if not structure.prunable:
        reasons = "; ".join(f"{layer.name}: {layer.kept_because}" for layer in structure)
        raise InputError(f"There is nothing to prune: no layer may be pruned. {reasons}")
    for layer in structure.prunable:
        if layer.name not in scores:
            raise InputError(f"There are no scores for the prunable layer {layer.name!r}.")
        check_scores(layer, scores[layer.name], protected.get(layer.name))


def make_task(
    structure: Structure,
    scores: Mapping[str, FloatArray],
    protected: Mapping[str, BoolArray],
    budget: str,
) -> Task:
    """Sort and check the scores; cap every layer at its floor and its unprotected connections."""
    check_all(structure, scores, protected)
    layers = structure.prunable
    ordered, caps = [], []
    for layer in layers:
        values = np.asarray(scores[layer.name])
        ordered.append(values.ravel()[prune_order(values, protected.get(layer.name))])
        caps.append(min(most_prunable(layer.connections), len(ordered[-1])))
    return Task(
        structure=structure,
        layers=layers,
        ordered=tuple(ordered),
        caps=np.array(caps, dtype=np.int64),
        units=np.array([unit_of(layer, budget) for layer in layers], dtype=np.int64),
        total=sum(layer.connections * unit_of(layer, budget) for layer in structure),
    )


def needed(task: Task, target: float) -> int:
    """Weights or multiply-adds that have to go, rounded up."""
    # A millionth of a weight: 0.7 · 10 is 7.000…01 in floating point, but means 7.
    return int(np.ceil(target * task.total - 1e-6))


def check_name(structure: Structure, name: str, option: str) -> None:
    """Raise if an option names a layer that does not exist or is not pruned."""
    reasons = {layer.name: layer.kept_because for layer in structure if not layer.prunable}
    reasons.update((item.name, item.reason) for item in structure.left_alone)
    if name in reasons:
        raise InputError(
            f"{option!r} names layer {name!r}, which is not pruned: {reasons[name]}. Leave it out."
        )
    names = [layer.name for layer in structure.prunable]
    if name not in names:
        raise InputError(
            f"{option!r} names layer {name!r}, which the network does not have."
            f"{closest(name, names)} 'snacs layers' lists them."
        )


def check_goal(goal: Goal, config: Config) -> None:
    """Raise if the goal and the allocation contradict each other, or nothing says how far to go.

    Manual limits *are* the answer to "how far", so a target or a tolerance beside them is an
    error. A tolerance speaks about SVM accuracy and needs the SVM curves. Without either, manual
    limits or a score threshold must say how far.
    """
    asked = goal.target is not None or goal.tolerance is not None
    if config.allocation == "manual" and asked:
        raise InputError(
            "allocation='manual' sets the limit of every layer by hand; leave out 'target' and "
            "'tolerance', or choose another allocation."
        )
    if goal.tolerance is not None and config.allocation != "svm":
        raise InputError(
            "'tolerance' is a loss of SVM accuracy and needs allocation='svm'. "
            f"Got allocation={config.allocation!r}; give a 'target' instead."
        )
    if asked or config.allocation == "manual":
        return
    if config.threshold_from is not None:
        raise InputError(
            "'threshold_from' takes the score threshold from a layer's limit, and nothing sets "
            "that limit. Give a 'target', a 'tolerance' or manual 'limits' too."
        )
    if config.threshold is None:
        raise InputError(
            "Nothing says how far to prune. Give 'target' (a fraction to remove, 0.7), "
            "'tolerance' (SVM accuracy that may be lost, 0.01), manual 'limits' or a 'threshold'."
        )


def unreachable(
    task: Task, goal: Goal, config: Config, most: float, why: tuple[str, ...] = ()
) -> TargetError:
    """The error that says how far one can go, and what stands in the way."""
    kept = [layer for layer in task.structure if not layer.prunable]
    held = sum(layer.connections * unit_of(layer, goal.budget) for layer in kept) / task.total
    names = ", ".join(layer.name for layer in kept[:5])
    names += f" and {len(kept) - 5} more" if len(kept) > 5 else ""
    floors = np.array([most_prunable(int(size)) for size in task.sizes])
    free = np.array([len(values) for values in task.ordered])
    floor = task.worth(task.sizes - floors) / task.total
    guarded = task.worth(floors - np.minimum(floors, free)) / task.total
    reasons = []
    if kept:
        reasons.append(f"layers that are kept hold {held:.1%} ({names})")
    reasons.append(f"every layer keeps at least 1 % of its connections ({floor:.1%} in all)")
    if guarded > 0:
        reasons.append(f"protected or coupled filters hold {guarded:.1%}")
    if config.threshold is not None or config.threshold_from is not None:
        reasons.append("connections that score above the threshold stay")
    reasons.extend(why)
    what = "multiply-adds" if goal.budget == "macs" else "weights"
    return TargetError(
        f"A target of {goal.target} of all {what} cannot be reached: at most "
        f"{np.floor(most * 1e4) / 1e4:.4f} can go. Reasons: {'; '.join(reasons)}. "
        "Lower the target, or keep and protect less."
    )

"""Bring a pruned network back towards its dense one: no labels, no training.

Three steps, each kept only if the outputs come closer to the dense network's (KL divergence on the
calibration images, eval mode): least squares on the kept weights and on the final classifier, layer
by layer (:mod:`snacs.network.sequential`), then BatchNorm statistics measured again, then scales
and shifts of all BatchNorm channels solved together for the logits (:mod:`snacs.network.logits`).
Backward passes tell how the network reads each layer's filters together
(:mod:`snacs.network.importance`) and how logits depend on scales and shifts; every step is a linear
problem that is solved, and nothing descends along a gradient.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from snacs.errors import InputError
from snacs.network.batches import (
    Forward,
    evaluating,
    logits_of,
    run,
    size_of,
)
from snacs.network.batchnorm import reestimate_
from snacs.network.between import drawn_back_, floating
from snacs.network.holding import collect, fit
from snacs.network.logits import approach_
from snacs.network.logits import why_not as unable
from snacs.network.masking import Mask, is_masked, remove_
from snacs.network.sequential import LayerRepair, Progress, solve_layers_
from snacs.values import Structure


@dataclass(frozen=True)
class RepairStep:
    """One step, and KL(dense ‖ pruned) in nats per image before and after it."""

    name: str
    before: float
    after: float
    kept: bool
    seconds: float


@dataclass(frozen=True)
class RepairReport:
    """What repair did: errors by layer, divergence by step, and what was left and why."""

    layers: tuple[LayerRepair, ...]
    steps: tuple[RepairStep, ...]
    images: int
    notes: tuple[str, ...] = ()

    @property
    def before(self) -> float:
        """KL(dense ‖ pruned) before any repair."""
        return self.steps[0].before if self.steps else 0.0

    @property
    def after(self) -> float:
        """The same, of the network as it is now."""
        return next((s.after for s in reversed(self.steps) if s.kept), self.before)


def repair_(
    model: nn.Module,
    images: Iterable[Any],
    *,
    structure: Structure,
    forward: Forward | None = None,
    dense: nn.Module | None = None,
    ridge: float = 1e-3,
    least_squares: bool = True,
    refine: bool = True,
    batchnorm: bool = True,
    logits: bool = True,
    solved_share: float = 1.0,
    bn_images: Iterable[Any] | None = None,
    progress: Progress | None = None,
    compared: Callable[[int, int], None] | None = None,
) -> RepairReport:
    """Repair a masked network in place.

    Parameters
    ----------
    images : iterable of batches
        Calibration images, labelled or not; 1,000 are enough. Activations of all of them are held
        at one time, in at most ``snacs.network.holding.MEMORY`` bytes: further batches are then
        left out and the report says so.
    structure : Structure
        From ``find_structure(model, batch)``.
    dense : nn.Module, optional
        The unpruned network. Without it, the weights under the masks are taken, which works once:
        after a first repair or training they are no longer dense.
    ridge : float
        How strongly weights are pulled to their old values, relative to the mean diagonal of the
        Gram matrix. Larger is safer with few images.
    least_squares, batchnorm, logits : bool
        The three steps. The last one finishes what least squares began, and is not taken without.
    solved_share : float
        How far to go with least squares: below 1, the result lies between the masked network (its
        BatchNorm measured again) and the solved one, and the BatchNorm step is part of that. For
        masks that suit the dense weights, such as those of option ``exchange``.
    refine : bool
        Let least squares know what a ReLU cuts off and how filters are read together
        (:mod:`snacs.network.refining`), and solve the final classifier too. False: every filter by
        itself, for its plain output.
    bn_images : iterable of batches, optional
        Augmented images for the BatchNorm statistics, as in training. Default: ``images``.
    progress : callable, optional
        Called with (layers done, layers, name).
    compared : callable, optional
        Called with (batches done, batches) whenever a network's outputs are looked at: before
        repair, after each of its steps, and while the last one is prepared.

    Returns
    -------
    RepairReport
        If this raises or is interrupted, the model is what it was before.
    """
    if not 0 < ridge < float("inf"):
        raise InputError(f"'ridge' must be a positive number. Got {ridge!r}.")
    if not 0 < solved_share <= 1:
        raise InputError(f"'solved_share' must lie in (0, 1]. Got {solved_share!r}.")
    if least_squares and not is_masked(model):
        raise InputError("The network carries no masks. Call apply_ first, then repair_.")
    reference = _reference(model, dense)
    batches = collect(images, model)
    notes: list[str] = []
    with _atomic(model), evaluating(model), evaluating(reference):
        batches = fit(reference, batches, forward, notes)

        def outputs(network: nn.Module) -> Iterator[Tensor]:
            for number, batch in enumerate(batches):
                yield _logits(network, batch, forward)
                if compared is not None:
                    compared(number + 1, len(batches))

        target = list(outputs(reference))

        def divergence() -> float:
            return _divergence(target, outputs(model))

        layers: list[LayerRepair] = []

        def solve() -> None:
            begin = None
            if solved_share < 1:
                saved = _snapshot(model)
                if batchnorm:
                    measure()
                begin = floating(model)
                _restore_(model, saved)
            found, left = solve_layers_(
                model,
                reference,
                batches,
                structure=structure,
                forward=forward,
                ridge=ridge,
                refine=refine,
                progress=progress,
            )
            layers.extend(found)
            notes.extend(f"Not repaired: {note}" for note in left)
            if begin is not None:
                drawn_back_(model, begin, 1 - solved_share)

        def measure() -> None:
            reestimate_(model, batches if bn_images is None else bn_images, forward=forward)

        def approach() -> None:
            note(approach_(model, batches, target, forward=forward, progress=compared))

        def note(reason: str | None) -> bool:
            if reason is not None:
                notes.append(f"No step for the logits: {reason}.")
            return reason is None

        last = least_squares and logits and note(unable(model, target[0].shape[1]))
        steps: list[RepairStep] = []
        current = divergence()
        for name, wanted, act in (
            ("least squares", least_squares, solve),
            ("batchnorm", batchnorm and not (least_squares and solved_share < 1), measure),
            ("logits", last, approach),
        ):
            if wanted:
                steps.append(_step(model, name, act, current, divergence))
                current = steps[-1].after if steps[-1].kept else current
        if any(step.kept for step in steps):
            for module in model.modules():
                if isinstance(module, Mask):
                    module.repaired.fill_(True)
    return RepairReport(
        layers=tuple(layers),
        steps=tuple(steps),
        images=sum(size_of(batch) for batch in batches),
        notes=tuple(notes),
    )


def _step(
    model: nn.Module,
    name: str,
    act: Callable[[], None],
    before: float,
    divergence: Callable[[], float],
) -> RepairStep:
    """Act, and undo it unless the outputs came closer to the dense ones."""
    start = time.perf_counter()
    saved = _snapshot(model)
    act()
    after = divergence()
    kept = after < before
    if not kept:
        _restore_(model, saved)
    return RepairStep(name, before, after, kept, time.perf_counter() - start)


def _reference(model: nn.Module, dense: nn.Module | None) -> nn.Module:
    if dense is model:
        raise InputError("'dense' must be another network than the pruned one: a copy made before.")
    if dense is not None:
        return dense
    if any(isinstance(m, Mask) and bool(m.repaired) for m in model.modules()):
        raise InputError(
            "This network was repaired before, so the weights under its masks are no longer dense. "
            "Pass dense=, the unpruned network."
        )
    reference = copy.deepcopy(model)
    remove_(reference)
    return reference


def _logits(model: nn.Module, batch: Any, forward: Forward | None) -> Tensor:
    return logits_of(run(model, batch, forward)).double()


def _divergence(target: list[Tensor], outputs: Iterable[Tensor]) -> float:
    """KL(dense ‖ pruned), mean over images, in nats; infinite if the outputs are not finite."""
    total, count = 0.0, 0
    for dense, pruned in zip(target, outputs, strict=True):
        log_dense, log_pruned = functional.log_softmax(dense, 1), functional.log_softmax(pruned, 1)
        total += float((log_dense.exp() * (log_dense - log_pruned)).sum())
        count += len(dense)
    mean = total / count
    return mean if mean == mean else float("inf")


def _snapshot(model: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in _tensors(model)}


def _restore_(model: nn.Module, saved: Mapping[str, Tensor]) -> None:
    with torch.no_grad():
        for name, tensor in _tensors(model):
            tensor.copy_(saved[name])


def _tensors(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    yield from model.named_parameters()
    yield from model.named_buffers()


@contextmanager
def _atomic(model: nn.Module) -> Iterator[None]:
    """An error inside leaves every parameter and buffer as it was."""
    saved = _snapshot(model)
    try:
        yield
    except BaseException:
        _restore_(model, saved)
        raise

"""What a change of each filter's output is worth at the end of the network.

With J the Jacobian of the (centred) logits by a filter's output at all positions, a change e of
that output moves the logits by J·e. For changes that are independent from position to position,

    E ‖J·e‖² = E[e²] · importance,    importance = E_images Σ_positions ‖J_position‖²,

and ‖J_position‖² is the mean square of v·J_position over random signs v: one backward pass per
batch, no labels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from snacs.errors import InputError
from snacs.network.batches import Forward, logits_of, move, run, size_of
from snacs.network.jacobian import chunks, watched
from snacs.network.layers import module_of
from snacs.values import FloatArray, Structure

Progress = Callable[[int, int], None]

# Images that are enough: importances differ by orders of magnitude, their errors by percents.
ENOUGH = 320


def output_importance(
    model: nn.Module,
    structure: Structure,
    batches: Iterable[Any],
    *,
    seed: int,
    forward: Forward | None = None,
    progress: Progress | None = None,
) -> dict[str, FloatArray]:
    """(c_out,) by name of the prunable layers; gradients of parameters are left untouched.

    Raises
    ------
    InputError
        If nothing can be differentiated: the message says what to choose instead.
    """
    totals = {layer.name: np.zeros(layer.c_out) for layer in structure.prunable}

    def add(name: str, gradient: Tensor) -> None:
        totals[name] += gradient.double().square().sum(dim=1).cpu().numpy()

    seen = _differentiate(model, structure, batches, add, seed, forward, progress)
    return {name: total / seen for name, total in totals.items()}


def output_coupling(
    model: nn.Module,
    structure: Structure,
    batches: Iterable[Any],
    *,
    seed: int,
    forward: Forward | None = None,
    progress: Progress | None = None,
) -> dict[str, Tensor]:
    """(groups, filters, filters) by name: E[JᵀJ] within each group; its diagonal is importance."""
    totals = {
        layer.name: torch.zeros(layer.groups, *2 * (layer.c_out // layer.groups,)).double()
        for layer in structure.prunable
    }

    def add(name: str, gradient: Tensor) -> None:
        rows = gradient.reshape(len(totals[name]), -1, gradient.shape[1])
        totals[name] += (rows @ rows.transpose(1, 2)).double().cpu()

    seen = _differentiate(model, structure, batches, add, seed, forward, progress)
    return {name: total / seen for name, total in totals.items()}


def _differentiate(
    model: nn.Module,
    structure: Structure,
    batches: Iterable[Any],
    add: Callable[[str, Tensor], None],
    seed: int,
    forward: Forward | None,
    progress: Progress | None,
) -> int:
    """Hand (filters, positions) gradients of every prunable layer to ``add``; returns images."""
    modules = {layer.name: module_of(model, layer) for layer in structure.prunable}
    signs = torch.Generator().manual_seed(seed)
    seen = 0
    with watched(model, modules) as outputs:
        for chunk in chunks(batches):
            outputs.clear()
            logits = logits_of(run(model, move(chunk, model), forward))
            for (name, _), gradient in zip(outputs, _by(logits, outputs, signs), strict=True):
                if gradient is not None:
                    channels = 1 if isinstance(modules[name], _ConvNd) else gradient.ndim - 1
                    add(name, gradient.movedim(channels, 0).flatten(1))
            seen += size_of(chunk)
            if progress is not None:
                progress(min(seen, ENOUGH), ENOUGH)
            if seen >= ENOUGH:
                break
    if seen == 0:
        raise InputError("There are no calibration images: the iterable gave no batch.")
    return seen


def _by(
    logits: Tensor, outputs: list[tuple[str, Tensor]], signs: torch.Generator
) -> Sequence[Tensor | None]:
    """Gradients of randomly signed logits by the outputs."""
    drawn = torch.randint(0, 2, tuple(logits.shape), generator=signs).to(logits) * 2 - 1
    # A common shift of all logits changes no prediction.
    drawn = drawn - drawn.mean(dim=1, keepdim=True)
    try:
        return torch.autograd.grad(
            (logits * drawn).sum(), [output for _, output in outputs], allow_unused=True
        )
    except RuntimeError as error:
        raise InputError(
            "The network's outputs cannot be differentiated, which score='information' needs "
            f"({error}). Choose another score: score='acmi' or score='l2'."
        ) from error

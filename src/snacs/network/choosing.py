"""Choose every layer's kernels in the network as it is by then: pruned up to that layer.

Dense and pruned network run side by side, layer by layer, as in repair. At each layer the kept
kernels are chosen so that the filters, fed with what the already pruned layers give them, can say
the most about the outputs of the *dense* network (:mod:`snacs.scores.surgeon`); where the output
joins a residual stream, about the output that would also make up for the error which the stream
carries already. A layer so makes good for the losses of earlier ones by the mere choice of what
stays.

Before the pass goes on, the layer is settled as it will be used: BatchNorm statistics are those of
the pruned output, or, with least squares, the kept weights are solved.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import nn

from snacs.connections import prune_order
from snacs.network.batches import Forward, evaluating
from snacs.network.holding import collect, fit
from snacs.network.masking import apply_, bake_, original_of
from snacs.network.moments import Moments
from snacs.network.sequential import LayerRepair, Progress, solve_layers_, solve_task_
from snacs.network.tasks import Task, why_not
from snacs.values import BoolArray, FloatArray, Structure

Score = Callable[..., FloatArray]


def sequential_scores(
    model: nn.Module,
    batches: Sequence[Any],
    masks: Mapping[str, BoolArray],
    *,
    structure: Structure,
    score: Score,
    importance: Mapping[str, FloatArray],
    protected: Mapping[str, BoolArray],
    least_squares: bool,
    silence: bool = True,
    ridge: float = 1e-3,
    forward: Forward | None = None,
    progress: Progress | None = None,
) -> tuple[dict[str, FloatArray], list[str]]:
    """(c_out, c_in) scores by layer, and which layers could not be reached and why.

    Parameters
    ----------
    batches : calibration images; activations are held at one time, as in repair.
    masks : (c_out, c_in) by layer: as many connections go as here. Layers that cannot be treated
        in order (called several times, too wide) keep these masks.
    score : ``snacs.scores.surgeon.surgeon`` or ``snacs.scores.information.information``, given by
        the caller: this room knows torch, those do not.
    least_squares : settle each layer by least squares (repair follows) or by its statistics.
    silence : a filter that lost all kernels says nothing at all, as ``apply_`` will have it.
    """
    pruned = copy.deepcopy(model)
    bake_(pruned)
    dense = copy.deepcopy(pruned)
    start = {
        layer.name: np.ones_like(masks[layer.name]) if why_not(layer) is None else masks[layer.name]
        for layer in structure.prunable
    }
    apply_(pruned, start, structure=structure, silence=False)
    found: dict[str, FloatArray] = {}

    def settle(task: Task, moments: Moments) -> LayerRepair:
        layer = structure[task.name]
        values = _scores(moments, task, layer.kernel, score, importance[task.name])
        found[task.name] = values
        keep = np.ones(layer.connections, dtype=bool)
        order = prune_order(values, protected.get(task.name))
        keep[order[: int((~masks[task.name]).sum())]] = False
        settled = replace(task, keep=np.repeat(keep.reshape(values.shape), layer.kernel, axis=1))
        solved = solve_task_(settled, moments, ridge) if least_squares else None
        _cut_(settled, silence=silence)
        return solved or _measure_(settled, moments)

    notes: list[str] = []
    with evaluating(pruned), evaluating(dense):
        held = fit(dense, collect(batches, dense), forward, notes)
        _, left = solve_layers_(
            pruned,
            dense,
            held,
            structure=structure,
            forward=forward,
            settle=settle,
            progress=progress,
        )
    return found, [*notes, *(f"Not chosen in order: {reason}" for reason in left)]


def _cut_(task: Task, *, silence: bool) -> None:
    """Make the mask permanent in this copy; silence the filters that have nothing left."""
    weight = original_of(task.module)
    keep = torch.from_numpy(task.keep).to(weight.device)
    dead = ~keep.any(dim=1)
    with torch.no_grad():
        weight.mul_(keep.reshape(weight.shape).to(weight.dtype))
        silent: list[Any] = []
        if silence and getattr(task.module, "bias", None) is not None:
            silent.append(original_of(task.module, "bias"))
        if silence and task.carrier is not None and task.carrier.affine:
            silent += [original_of(task.carrier), original_of(task.carrier, "bias")]
        for tensor in silent:
            tensor[dead] = 0


def _measure_(task: Task, moments: Moments) -> LayerRepair:
    """Give the norm that follows the mean and variance of the pruned output."""
    weight = original_of(task.module).detach()
    bias = getattr(task.module, "bias", None)
    flat = weight.to(moments.gram).reshape(moments.groups, moments.filters, moments.columns)
    constant = torch.zeros(len(weight)) if bias is None else bias.detach()
    offset = constant.to(moments.gram).reshape(moments.groups, moments.filters)
    mean = (flat * moments.inputs[:, None]).sum(2) / moments.count
    square = (flat * (flat @ moments.gram)).sum(2) / moments.count
    norm = task.carrier
    if norm is not None and norm.running_mean is not None and norm.running_var is not None:
        norm.running_mean.copy_((mean + offset).reshape(-1))
        norm.running_var.copy_((square - mean**2).clamp(min=0.0).reshape(-1))
    error = float(moments.error(flat, offset).sum() / moments.squares.sum().clamp(min=1e-300))
    return LayerRepair(task.name, error, error)


def _scores(
    moments: Moments, task: Task, kernel: int, score: Score, importance: FloatArray
) -> FloatArray:
    """Scores of one layer from the sums over positions, group by group."""
    weight = original_of(task.module).detach().double().cpu()
    rows, columns = moments.filters, moments.columns
    flat = weight.reshape(moments.groups, rows, columns).numpy()
    parts = []
    for group in range(moments.groups):
        mean = (moments.inputs[group] / moments.count).cpu().numpy()
        aim = (moments.targets[group] / moments.count).cpu().numpy()
        covariance = (moments.gram[group] / moments.count).cpu().numpy() - np.outer(mean, mean)
        cross = (moments.cross[group] / moments.count).cpu().numpy() - np.outer(mean, aim)
        power = (moments.squares[group] / moments.count).cpu().numpy() - aim**2
        mine = slice(group * rows, (group + 1) * rows)
        parts.append(
            score(
                flat[group].reshape(rows, columns // kernel, kernel),
                covariance,
                importance=np.asarray(importance[mine]),
                cross=cross.T,
                power=np.maximum(power, 0.0),
                threads=torch.get_num_threads(),
            )
        )
    return np.concatenate(parts)

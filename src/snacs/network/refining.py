"""Least squares that knows what the network does with the outputs it fits.

Plain least squares treats every filter by itself and every value alike. Two facts are left out.

*ReLU.* Where the dense network's value lies below zero, any other value below zero is as good. The
targets there are moved to the nearest value that the ReLU makes the same of: to the prediction
itself if it is below zero, else to zero. Solving again with the moved targets lowers the error
behind the ReLU, because the moved target was the nearest of all that are right; a few rounds with
Nesterov's momentum get most of it.

*Coupling.* Filters are read together. If a change e of a layer's outputs moves the logits by J·e,
what should be small is eᵀMe with M = E[JᵀJ] (:mod:`snacs.network.importance`), not eᵀe: an error
of one filter may be made up for by another one. Without masks that changes nothing; with them,
every filter can use other inputs, and it does. With windows of covariance C, the kept weights W
minimise

    tr M (W C Wᵀ − 2 W D) + ρ ‖W − V‖²,

solved by conjugate gradients: one step costs two matrix products. M is mixed with its own diagonal,
since it is the Jacobian of the dense network, measured on few images.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from snacs.network.conjugate import conjugate
from snacs.network.leastsquares import Problem, Solution
from snacs.network.moments import Moments

MIX = 0.9
"""Share of M itself against its diagonal. 0.5 to 0.99 measured alike."""
ROUNDS = 3
"""Of moving targets; 5 and 10 brought less than the noise of 5,000 test images."""


@dataclass(frozen=True, eq=False)
class Reading:
    """How the network reads a layer.

    ``coupling`` (groups, filters, filters) or None; ``sign`` (groups, filters), the sign of what
    the values are multiplied with before the ReLU: 1, −1, or 0 where that says nothing; None
    without a ReLU.
    """

    coupling: Tensor | None = None
    sign: Tensor | None = None


def refine(problem: Problem, first: Solution, reading: Reading) -> Solution:
    """Go on from the plain solution ``first``; returns it unchanged if there is nothing to know."""
    sums = problem.moments
    sign = reading.sign if sums.samples else None
    if reading.coupling is None and sign is None:
        return first
    metric = None if reading.coupling is None else mixed(reading.coupling.to(sums.gram))
    shape = problem.start.shape
    weight, constant = first.weight.reshape(shape), first.offset.reshape(shape[:2])
    if metric is not None:
        weight, constant = _solve(problem, sums.cross, sums.targets, weight, metric, first.ridge)
    if sign is not None:
        before: list[Tensor] = []
        for number in range(ROUNDS):
            more, shift, before = _moved(sums, weight, constant, sign, number, before)
            cross, targets = sums.cross + more, sums.targets + shift
            weight, constant = _solve(problem, cross, targets, weight, metric, first.ridge)
    after = problem.relative_error(weight, constant)
    flat = weight.reshape(-1, sums.columns)
    return Solution(flat, constant.reshape(-1), first.before, after, first.ridge)


def mixed(coupling: Tensor) -> Tensor:
    """M with a mean diagonal of one, its off-diagonal part weakened."""
    diagonal = coupling.diagonal(dim1=1, dim2=2)
    scale = diagonal.mean(dim=1).clamp(min=torch.finfo(coupling.dtype).tiny)[:, None, None]
    return (MIX * coupling + (1 - MIX) * torch.diag_embed(diagonal)) / scale


def _moved(
    sums: Moments,
    weight: Tensor,
    constant: Tensor,
    sign: Tensor,
    number: int,
    before: list[Tensor],
) -> tuple[Tensor, Tensor, list[Tensor]]:
    """What moving the targets adds to the sums, and the moved targets of this round."""
    cross, targets = torch.zeros_like(sums.cross), torch.zeros_like(sums.targets)
    momentum = number / (number + 3)
    moved: list[Tensor] = []
    kept = 0
    for index, (x, t, zero) in enumerate(sums.samples):
        guess = weight.to(x) @ x + constant.to(x)[:, :, None]
        side = sign.to(x)[:, :, None]
        nearest = torch.where(side * (guess - zero) <= 0, guess, zero)
        # Where the sign is zero, nothing is known of the ReLU: the target stays.
        new = torch.where((side * (t - zero) <= 0) & (side != 0), nearest, t)
        ahead = new if number == 0 else new + momentum * (new - before[index])
        moved.append(new)
        cross += (x @ (ahead - t).transpose(1, 2)).to(cross)
        targets += (ahead - t).sum(2).to(targets)
        kept += x.shape[2]
    share = sums.count / kept
    return cross * share, targets * share, moved


def _solve(
    problem: Problem,
    cross: Tensor,
    targets: Tensor,
    start: Tensor,
    metric: Tensor | None,
    ridge: float,
) -> tuple[Tensor, Tensor]:
    """Weights and constants for the given sums, from ``start`` on."""
    gram, centred = problem.centred(cross, targets)
    if metric is None:
        solved = problem.by_filter(gram, centred, ridge)
    else:
        keep = torch.from_numpy(problem.keep).to(gram.device)
        parts = zip(gram, centred, metric, keep, start, problem.start, strict=True)
        solved = torch.stack([conjugate(*part, ridge=ridge) for part in parts])
    return solved, problem.constants(solved, targets)

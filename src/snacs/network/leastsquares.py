"""Ridge least squares for one layer: sums over positions, then one solution per filter.

With windows x (n columns: input channel × kernel), targets t and a filter's kept columns S, the
kept weights minimise

    Σ (t − w·x_S − b)² + ρ ‖w − v_S‖²,    ρ = (ridge + e·n/N) · mean diagonal of the Gram matrix,

where v are the weights before. Pulling towards v and not towards zero means that the error can only
fall: w = v is one of the candidates. b is free where the layer can carry an offset (it is then
eliminated by centring the sums), else it stays out.

The second term of ρ guards against few samples. N positions cannot determine n columns if a
relative error e cannot be explained: with noise σ² = e·mean(t²) and weights of the size of v, the
best pull is σ²/mean(v²), and mean(t²) is about n·mean(v²)·mean(x²), which gives e·n/N.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from snacs.network.conjugate import LARGE, conjugate
from snacs.network.moments import Moments
from snacs.values import BoolArray

MANY = 16
"""Different masks in one layer up to which each is solved by itself, however large it is."""


@dataclass(frozen=True, eq=False)
class Solution:
    """New weights (c_out, n), offsets (c_out,), and the relative error before and after.

    ``ridge`` is what was used in the end, with what few samples added to it.
    """

    weight: Tensor
    offset: Tensor
    before: float
    after: float
    ridge: float = 0.0


def problem_of(
    moments: Moments, weight: Tensor, keep: BoolArray, *, bias: Tensor | None, offset: bool
) -> Problem:
    """The problem of one layer.

    Parameters
    ----------
    weight : (c_out, n)
        The weights before; masked columns are ignored.
    keep : (c_out, n)
        Rows without any kept column are left as they are.
    bias : (c_out,) or None
        What the module adds now, for the error before.
    offset : bool
        Whether the layer can carry a new constant; without, ``bias`` is kept.
    """
    mask = torch.from_numpy(np.ascontiguousarray(keep)).to(moments.device)
    shape = (moments.groups, moments.filters, moments.columns)
    start = torch.where(mask, weight.to(moments.gram), 0.0).reshape(shape)
    constant = torch.zeros(len(weight)) if bias is None else bias.detach()
    return Problem(
        moments, start, keep.reshape(shape), constant.to(moments.gram).reshape(shape[:2]), offset
    )


def solve(problem: Problem, *, ridge: float) -> Solution:
    """Solve every filter's kept columns.

    ``ridge`` is relative to the mean diagonal of the Gram matrix; more is added where samples are
    few.
    """
    start, moments = problem.start, problem.moments
    samples, columns = moments.count, moments.columns
    before = problem.relative_error(start, problem.constant)
    if samples <= columns:
        return problem.solution(before, ridge + before * columns / samples)
    first = problem.solution(before, ridge)
    unexplained = min(before, first.after * samples / (samples - columns))
    extra = unexplained * columns / samples
    return first if extra < 0.1 * ridge else problem.solution(before, ridge + extra)


@dataclass(frozen=True, eq=False)
class Problem:
    """One layer: start and keep are (groups, filters, n), constant is (groups, filters)."""

    moments: Moments
    start: Tensor
    keep: BoolArray
    constant: Tensor
    offset: bool

    def solution(self, before: float, ridge: float) -> Solution:
        sums = self.moments
        solved = self.by_filter(*self.centred(sums.cross, sums.targets), ridge)
        constant = self.constants(solved, sums.targets)
        after = self.relative_error(solved, constant)
        flat = solved.reshape(-1, sums.columns)
        return Solution(flat, constant.reshape(-1), before, after, ridge)

    def by_filter(self, gram: Tensor, cross: Tensor, ridge: float) -> Tensor:
        """(groups, filters, n): every filter by itself."""
        rows = zip(gram, cross, self.start, self.keep, strict=True)
        return torch.stack([_solve_group(*row, ridge) for row in rows])

    def constants(self, weight: Tensor, targets: Tensor) -> Tensor:
        """(groups, filters): the best constant for given weights and sums of targets."""
        if not self.offset:
            return self.constant
        sums = self.moments
        live = torch.from_numpy(self.keep.any(axis=2)).to(sums.device)
        free = (targets - (weight * sums.inputs[:, None, :]).sum(2)) / sums.count
        return torch.where(live, free, self.constant)

    def relative_error(self, weight: Tensor, constant: Tensor) -> float:
        total = float(self.moments.squares.sum())
        return float(self.moments.error(weight, constant).sum()) / total if total > 0 else 0.0

    def centred(self, cross: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Sums without the part that an offset takes up, or that the fixed bias explains."""
        sums = self.moments
        if not self.offset:
            fixed = sums.inputs[:, :, None] * self.constant[:, None, :]
            return sums.gram, cross - fixed
        means = sums.inputs / sums.count
        gram = sums.gram - means[:, :, None] * sums.inputs[:, None, :]
        return gram, cross - means[:, :, None] * targets[:, None, :]


def _solve_group(
    gram: Tensor, cross: Tensor, start: Tensor, keep: BoolArray, ridge: float
) -> Tensor:
    """(filters, n) solutions; filters with equal masks share one factorisation.

    The cost of a filter is that of a Cholesky factor of its kept columns or of its removed ones,
    whichever are fewer: at most (n/2)³/3, after one inverse of the whole matrix. Where columns and
    different masks are many, conjugate gradients solve all filters together.
    """
    solved = start.clone()
    pull = ridge * float(gram.diagonal().mean())
    if not pull > 0:
        return solved
    right = cross + pull * start.T
    columns = gram.shape[0]
    inverse: Tensor | None = None
    patterns, members = np.unique(keep, axis=0, return_inverse=True)
    if columns >= LARGE and len(patterns) > MANY:
        stays = torch.from_numpy(keep).to(gram.device)
        return conjugate(gram, cross, None, stays, start, start, ridge=ridge)
    for index, pattern in enumerate(patterns):
        rows = torch.from_numpy(np.flatnonzero(members.reshape(-1) == index)).to(gram.device)
        kept = torch.from_numpy(np.flatnonzero(pattern)).to(gram.device)
        if len(kept) == 0:
            continue
        if 2 * len(kept) <= columns or columns < 64:
            matrix = gram[kept][:, kept]
            matrix.diagonal().add_(pull)
            answer = torch.cholesky_solve(right[kept][:, rows], _cholesky(matrix))
        else:
            if inverse is None:
                whole = gram.clone()
                whole.diagonal().add_(pull)
                inverse = torch.cholesky_inverse(_cholesky(whole))
            gone = torch.from_numpy(np.flatnonzero(~pattern)).to(gram.device)
            free = inverse @ right[:, rows]
            if len(gone):
                force = torch.cholesky_solve(free[gone], _cholesky(inverse[gone][:, gone]))
                free = free - inverse[:, gone] @ force
            answer = free[kept]
        solved[rows[:, None], kept[None, :]] = answer.T
    return solved


def _cholesky(matrix: Tensor) -> Tensor:
    """The factor; rounding may make a nearly singular matrix indefinite, then more is added."""
    factor: Tensor
    factor, failed = torch.linalg.cholesky_ex(matrix)
    jitter = 1e-12 * float(matrix.diagonal().mean())
    while int(failed):
        factor, failed = torch.linalg.cholesky_ex(
            matrix + jitter * torch.eye(len(matrix), dtype=matrix.dtype, device=matrix.device)
        )
        jitter *= 10
    return factor

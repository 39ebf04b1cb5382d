"""Conjugate gradients for the kept weights of all filters of a layer at one time.

Solved directly, every filter needs a factor of its own, because it has a mask of its own: with
4,608 columns and 512 filters that takes minutes. Here a step is one product with the whole Gram
matrix for all filters together (two, where filters are read together), and some dozens will do.
"""

from __future__ import annotations

import torch
from torch import Tensor

STEPS, CLOSE = 100, 1e-3
"""They end after so many steps, or when the residual is so small a part of what it is for weights
of zero."""
LARGE = 1024
"""Columns from which on a layer is large: solved here even where direct solutions would do
(``leastsquares``), and in single precision, at twice the speed. Sums need double precision, steps
towards a thousandth do not."""


def conjugate(
    gram: Tensor,
    cross: Tensor,
    metric: Tensor | None,
    keep: Tensor,
    start: Tensor,
    old: Tensor,
    *,
    ridge: float,
    steps: int = STEPS,
    close: float = CLOSE,
) -> Tensor:
    """(filters, n) kept weights that minimise tr M (W C Wᵀ − 2 W D) + ρ ‖W − old‖².

    Parameters
    ----------
    gram : (n, n), C; cross : (n, filters), D
    metric : (filters, filters), M; None where every filter counts for itself
    keep : (filters, n) bool
    start : (filters, n), where to begin; old : (filters, n), what ρ pulls to
    ridge : ρ relative to the mean diagonals of C and M
    """
    wide = gram.dtype
    if gram.shape[0] >= LARGE:
        gram, cross, start, old = (part.float() for part in (gram, cross, start, old))
        metric = None if metric is None else metric.float()
    kept = keep.to(gram.dtype)
    worth = torch.ones_like(start[:, 0]) if metric is None else metric.diagonal()
    pull = ridge * float(gram.diagonal().mean()) * float(worth.mean())
    if not pull > 0:
        return (start * kept).to(wide)

    def read(rows: Tensor) -> Tensor:
        return rows if metric is None else metric @ rows

    scale = worth.clamp(min=0)[:, None] * gram.diagonal().clamp(min=0)[None] + pull
    weight = start * kept
    given = (read(cross.T) + pull * old) * kept
    enough = close**2 * float((given * given / scale).sum())
    residual = given - (read(weight @ gram) + pull * weight) * kept
    step = direction = residual / scale
    size = (residual * step).sum()
    for _ in range(steps):
        if not float(size) > enough:
            break
        image = (read(direction @ gram) + pull * direction) * kept
        length = size / (direction * image).sum()
        weight = weight + length * direction
        residual = residual - length * image
        step = residual / scale
        last, size = size, (residual * step).sum()
        direction = step + (size / last) * direction
    return weight.to(wide)

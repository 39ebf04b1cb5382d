"""Adaptive conditional mutual information: the readable reference, one line per equation.

Everything here starts from integer codes (bins) of N samples of X, Y and Z; ``hashing`` makes them.
The compiled kernels compute the same numbers for all pairs of a layer and are tested against this
file.

The estimator is the paper's eq. 5 with g(t) = (t − 1)² / (2(t + 1)):

    Î(X; Y | Z) = Σ φ(i,j,k) · (r_ik r_jk / r_k) · g(r_ijk r_k / (r_ik r_jk))

With counts r = N_ijk and α = N_ik N_jk / N_k (what independence given Z would put there) the
summand is φ · (r − α)² / (2N (r + α)). Since g(0) = 1/2, a cell with expected but no observed mass
counts φ · α / (2N): ``support="full"`` sums over all cells with α > 0, ``"edges"`` over observed
ones only, as the paper prints it. A constant Z gives the unconditional AMI, eq. 1.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from snacs.config import check_choice

Codes = NDArray[np.integer[Any]]
Values = NDArray[np.floating[Any]]

SUPPORTS = ("full", "edges")


def divergence(ratio: Values) -> Values:
    """g(t) = (t − 1)² / (2(t + 1)): 0 at t = 1, 1/2 at t = 0.

    >>> [float(g) for g in divergence(np.array([0.0, 1.0, 3.0]))]
    [0.5, 0.0, 0.5]
    """
    return (ratio - 1) ** 2 / (2 * (ratio + 1))


def count_cells(x: Codes, y: Codes, z: Codes) -> NDArray[np.int64]:
    """The table N_ijk of shape (bins of X, bins of Y, bins of Z); codes may be any integers."""
    bins = [np.unique(codes, return_inverse=True) for codes in (x, y, z)]
    table = np.zeros([len(values) for values, _ in bins], dtype=np.int64)
    np.add.at(table, tuple(inverse.reshape(-1) for _, inverse in bins), 1)
    return table


def estimate(
    x: Codes, y: Codes, z: Codes, *, support: str = "full", scaling: Values | float = 1.0
) -> float:
    """ACMI of eq. 5 from the codes of N samples.

    Parameters
    ----------
    x, y, z : (N,) integer codes
    support : "full" (all cells with α > 0) or "edges" (observed cells)
    scaling : φ, a number or one per cell in the order of :func:`count_cells`

    Returns
    -------
    float
        In [0, ½ · Σ φ (r + α) / N], eq. 2; for φ = 1 in [0, 1).

    >>> x = np.array([0, 1, 0, 1])
    >>> round(estimate(x, x, np.zeros(4, int)), 6)  # X = Y in m = 2 equal cells: 1 − 2/(m + 1)
    0.333333
    """
    return estimate_table(count_cells(x, y, z), support=support, scaling=scaling)


def estimate_table(
    table: NDArray[np.integer[Any]], *, support: str = "full", scaling: Values | float = 1.0
) -> float:
    """The same from the counts N_ijk, shape (bins of X, bins of Y, bins of Z)."""
    check_choice("support", support, SUPPORTS)
    samples = table.sum()
    joint = table / samples  # r_ijk
    with_x = joint.sum(axis=1, keepdims=True)  # r_ik
    with_y = joint.sum(axis=0, keepdims=True)  # r_jk
    with_z = joint.sum(axis=(0, 1), keepdims=True)  # r_k
    expected = np.divide(with_x * with_y, with_z, out=np.zeros_like(joint), where=with_z > 0)
    ratio = np.divide(joint, expected, out=np.ones_like(joint), where=expected > 0)
    cells = expected * divergence(ratio)  # r_ik r_jk / r_k · g(t)
    summed = joint > 0 if support == "edges" else expected > 0
    return float((np.broadcast_to(scaling, cells.shape) * cells)[summed].sum())


def estimate_closed(x: Codes, y: Codes, z: Codes, *, support: str = "full") -> float:
    """The same for φ = 1 by sums over observed cells alone.

    full = 1 − (2/N) Σ rα / (r + α); edges = ½ + Σ α / 2N − (2/N) Σ rα / (r + α).
    """
    check_choice("support", support, SUPPORTS)
    table = count_cells(x, y, z)
    samples = table.sum()
    margins = table.sum(axis=1, keepdims=True) * table.sum(axis=0, keepdims=True)
    observed = table > 0
    joint = table[observed]  # r
    expected = (margins / np.maximum(table.sum(axis=(0, 1)), 1))[observed]  # α
    overlap = 2 / samples * (joint * expected / (joint + expected)).sum()
    if support == "full":
        return float(1 - overlap)
    return float(0.5 + expected.sum() / (2 * samples) - overlap)


def bin_means(codes: Codes, values: Values) -> Values:
    """Mean of ``values`` (N, dims) over each bin, in the order of :func:`count_cells`."""
    _, inverse, counts = np.unique(codes, return_inverse=True, return_counts=True)
    sums = np.zeros((len(counts), values.shape[1]))
    np.add.at(sums, inverse.reshape(-1), values.astype(np.float64))
    return sums / counts[:, None]


def cell_norms(codes: tuple[Codes, Codes, Codes], values: tuple[Values, Values, Values]) -> Values:
    """‖(x̄_i, ȳ_j, z̄_k)‖ for every cell, also empty ones: what an activation φ is a function of."""
    squares = [(bin_means(c, v) ** 2).sum(axis=1) for c, v in zip(codes, values, strict=True)]
    x, y, z = squares
    return np.asarray(np.sqrt(x[:, None, None] + y[None, :, None] + z[None, None, :]))

"""From real values to integer codes: bins with a random shift, projections, the paper's hash.

H1 floors: h(x) = ⌊(x + b)/ε⌋ with b uniform in [0, ε). Here values are multiplied by 1/ε and the
shift is given as the fraction b/ε. A scalar is only floored. A vector (a group of filters, or the
conditioning set Z) is hashed in one of two ways:

* ``projection`` (p-stable, locality sensitive): a vector with more coordinates than directions is
  first projected to that many Gaussian directions; what remains is floored coordinate by
  coordinate, and samples with equal bins share a cell, exactly.
* ``floor`` (the paper's text): every coordinate is floored and H2 maps the resulting integer vector
  onto {1..F} with F = c_H · N, c_H = 10. H2 is drawn from a universal family (a random linear form
  modulo the prime 2³¹ − 1, then a random quadratic polynomial, so that neighbouring cells do not
  land in a pattern): two vectors collide with a chance of about 1/F.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import floor, log2
from typing import Any

import numpy as np
from numpy.typing import NDArray

from snacs.scores.kernels import number_codes, plain
from snacs.scores.kernels_columns import column_deviations

Floats = NDArray[np.floating[Any]]
Codes = NDArray[np.integer[Any]]

CODE_LIMIT = 2**30
"""Codes saturate here, far beyond any sensible width, so that differences fit into 32 bits."""
BUCKETS_PER_SAMPLE = 10
"""c_H of the paper: F = c_H · N."""
PRIME = 2**31 - 1


def mean_deviation(values: Floats) -> float:
    """A layer's unit of length: the mean over filters of the deviation of (N, filters) values.

    Below 1e-30, where a reciprocal would leave single precision, it counts as 0.
    """
    deviation = float(column_deviations(plain(values)).mean())
    return deviation if deviation > 1e-30 else 0.0


def bin_codes(values: Floats, inverse: np.float32, shift: np.float32) -> NDArray[np.int32]:
    """⌊(x + b)/ε⌋ in single precision, with ``inverse`` = 1/ε and ``shift`` = b/ε.

    >>> bin_codes(np.array([-0.1, 0.1, 0.9], np.float32), np.float32(2), np.float32(0.5))
    array([0, 0, 2], dtype=int32)
    """
    scaled = np.floor(values.astype(np.float32, copy=False) * inverse + shift)
    return np.asarray(np.clip(scaled, -CODE_LIMIT, CODE_LIMIT), dtype=np.int32)


def draw_shifts(rng: np.random.Generator, shifts: int) -> NDArray[np.float32]:
    """(shifts, 3) fractions b/ε for X, Y and Z.

    Each is uniform on [0, 1); the draws of one variable are spread evenly (a Latin hypercube), so
    that few shifts already average the grid's position out.
    """
    strata = np.stack([rng.permutation(shifts) for _ in range(3)], axis=1)
    return ((strata + rng.random((shifts, 3))) / shifts).astype(np.float32)


def direction_count(samples: int, directions: int | None) -> int:
    """The configured number of directions, or ⌊log2(N/10)⌋ (at least 1) for None.

    >>> direction_count(2000, None), direction_count(2000, 4)
    (7, 4)
    """
    return directions if directions is not None else max(1, floor(log2(max(samples, 20) / 10)))


def draw_directions(rng: np.random.Generator, count: int, dims: int) -> NDArray[np.float64]:
    """(count, dims) Gaussian directions of unit length: 2-stable, and the mean loudness stays."""
    directions = rng.standard_normal((count, dims))
    return np.asarray(directions / np.linalg.norm(directions, axis=1, keepdims=True))


@dataclass(frozen=True, eq=False)
class Buckets:
    """H2: (dims, N) integer codes → {0..F−1}, drawn at random.

    The linear form Σ m_d c_d comes first, since a coordinate can be left out of it; then
    a polynomial u² + p u + q of its value u, all modulo PRIME; the result modulo F.
    """

    multipliers: NDArray[np.int64]
    polynomial: tuple[int, int]
    count: int

    @staticmethod
    def draw(rng: np.random.Generator, dims: int, samples: int) -> Buckets:
        multipliers = rng.integers(1, PRIME, size=dims, dtype=np.int64)
        first, second = (int(value) for value in rng.integers(0, PRIME, size=2))
        return Buckets(multipliers, (first, second), BUCKETS_PER_SAMPLE * samples)

    def form(self, codes: Codes, dims: slice | Codes = slice(None)) -> NDArray[np.int64]:
        """The linear form of some coordinates, before H2 is taken: forms add up modulo PRIME."""
        total = np.zeros(codes.shape[1], dtype=np.int64)
        for multiplier, row in zip(self.multipliers[dims], codes, strict=True):
            total = (total + multiplier * row.astype(np.int64)) % PRIME
        return total

    def finish(self, form: NDArray[np.int64]) -> NDArray[np.int64]:
        """H2 of a summed form."""
        linear, constant = self.polynomial
        mixed = (form * ((form + linear) % PRIME) + constant) % PRIME
        return np.asarray(mixed % self.count)

    def __call__(self, codes: Codes) -> NDArray[np.int64]:
        return self.finish(self.form(codes))


@dataclass(frozen=True, eq=False)
class VectorHash:
    """Hash of scalars and vectors of at most ``dims`` coordinates, the same for all filters.

    ``directions`` (count, dims) is None where nothing is projected; ``buckets`` is None for the
    projection hash. A shorter vector uses the first columns, of unit length again.
    """

    directions: NDArray[np.float64] | None
    buckets: Buckets | None

    @staticmethod
    def draw(
        rng: np.random.Generator, *, kind: str, dims: int, samples: int, directions: int
    ) -> VectorHash:
        if kind == "floor":
            return VectorHash(None, Buckets.draw(rng, dims, samples))
        wide = dims > directions
        return VectorHash(draw_directions(rng, directions, dims) if wide else None, None)

    def project(self, values: Floats) -> NDArray[np.float32]:
        """(dims, N) → (at most ``count``, N); vectors no wider than that stay as they are."""
        dims = values.shape[0]
        if self.directions is None or dims <= self.directions.shape[0]:
            return values.astype(np.float32, copy=False)
        directions = self.directions[:, :dims]
        directions = directions / np.linalg.norm(directions, axis=1, keepdims=True)
        # einsum, not a BLAS product: the bits must not depend on BLAS threads.
        projected = np.einsum("kd,dn->kn", directions, values.astype(np.float64))
        return np.asarray(projected, dtype=np.float32)

    def __call__(
        self, values: Floats, inverse: np.float32, shift: np.float32
    ) -> tuple[NDArray[np.int32], int]:
        """Dense numbers 0, 1, … of the cells of (dims, N) values, and how many cells there are."""
        return self.number(self.project(values), inverse, shift)

    def number(
        self, projected: Floats, inverse: np.float32, shift: np.float32
    ) -> tuple[NDArray[np.int32], int]:
        """The same of values that are projected already: once for all shifts."""
        codes: Codes = bin_codes(projected, inverse, shift)
        if self.buckets is not None:
            form = self.buckets.form(codes, slice(0, codes.shape[0]))
            codes = self.buckets.finish(form)[None, :]
        numbers, count = number_codes(np.ascontiguousarray(codes))
        return numbers, int(count)

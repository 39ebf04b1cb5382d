"""The two sides of a layer in bins: filters in bin widths, groups of them as cell numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from snacs.scores.hashing import VectorHash
from snacs.scores.kernels import bin_squares, plain
from snacs.scores.kernels_columns import project, turn
from snacs.scores.kernels_layer import number_groups
from snacs.scores.parallel import Threads


@dataclass(frozen=True, eq=False)
class Side:
    """The groups of one side in bins.

    ``numbers`` (groups, N) are dense, ``bins`` (groups,) says how many each has; ``squares``
    (groups, bins) are the squared norms of the bin means, where φ asks for them.
    """

    numbers: NDArray[np.int32]
    bins: NDArray[np.int64]
    squares: NDArray[np.float64]
    mean_bins: float


def side_of(
    values: NDArray[np.float32],
    raw: NDArray[np.float32] | None,
    parts: Sequence[slice],
    group_hash: VectorHash,
    shift: np.float32,
    threads: Threads,
) -> Side:
    """Bins of the groups ``parts`` of ``values``; squares of their means in ``raw``, if given."""
    if group_hash.directions is None and group_hash.buckets is None:
        starts = np.array([part.start for part in parts] + [parts[-1].stop])
        numbers = np.empty((len(parts), values.shape[1]), np.int32)
        bins = np.empty(len(parts), np.int64)

        def number(first: int, last: int) -> None:
            number_groups(values, starts, shift, first, last, numbers, bins)

        threads.share(number, len(parts))
    else:
        hashed = [group_hash(values[part], np.float32(1), shift) for part in parts]
        numbers = np.stack([codes for codes, _ in hashed])
        bins = np.array([count for _, count in hashed], dtype=np.int64)
    squares = np.zeros((len(parts), int(bins.max())))
    if raw is not None:
        for index, part in enumerate(parts):
            count = int(bins[index])
            squares[index, :count] = bin_squares(numbers[index], count, raw[part])
    return Side(numbers, bins, squares, float(bins.mean()))


def in_bins(
    values: NDArray[np.floating[Any]], width: float, threads: Threads
) -> NDArray[np.float32]:
    """(filters, N), measured in bin widths."""
    given, factor = plain(values), np.float32(1 / width)
    turned = np.empty(given.shape[::-1], np.float32)
    threads.share(lambda first, last: turn(given, factor, first, last, turned), len(turned))
    return turned


def project_inputs(
    inputs: NDArray[np.float32],
    directions: NDArray[np.float64],
    width: float,
    threads: Threads | None = None,
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """S = R · inputs (directions, N) and R^T (inputs, directions), scaled to deviations of 1/width.

    A direction along which nothing varies becomes 0.
    """
    projection = np.empty((len(directions), inputs.shape[1]))

    def some(first: int, last: int) -> None:
        project(directions, inputs, first, last, projection)

    (threads or Threads(1)).share(some, inputs.shape[1])
    deviation = projection.std(axis=1)
    scale = np.divide(1 / width, deviation, out=np.zeros_like(deviation), where=deviation > 0)
    scaled = (directions * scale[:, None]).T
    return (projection * scale[:, None]).astype(np.float32), scaled.astype(np.float32, order="C")

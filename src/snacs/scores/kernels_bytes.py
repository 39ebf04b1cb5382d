"""Compiled counting of bytes, for a block of children at once: the steps of ``kernels_cells``.

``codes`` (N, children) holds one byte per sample and child, ``order`` the samples of a parent. Each
step is one loop over children, which the compiler turns into vector instructions; samples are
taken several at a time because such a loop costs some 50 ns however short its rows are.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from snacs.scores.kernels import inlined


@inlined
def count_equal(
    codes: Any, order: Any, first: int, last: int, own: int, counts: Any, row: int
) -> None:
    """Add to a row of counts how many of the samples first … last equal the sample ``own``."""
    width = codes.shape[1]
    position = first
    while position + 3 < last:
        one, two = order[position], order[position + 1]
        three, four = order[position + 2], order[position + 3]
        for child in range(width):
            counts[row, child] += (
                np.uint8(codes[one, child] == codes[own, child])
                + np.uint8(codes[two, child] == codes[own, child])
                + np.uint8(codes[three, child] == codes[own, child])
                + np.uint8(codes[four, child] == codes[own, child])
            )
        position += 4
    while position < last:
        one = order[position]
        for child in range(width):
            counts[row, child] += np.uint8(codes[one, child] == codes[own, child])
        position += 1


@inlined
def count_code(
    codes: Any, order: Any, first: int, last: int, code: Any, counts: Any, row: int
) -> None:
    """The same for one byte for all children."""
    width = codes.shape[1]
    position = first
    while position + 7 < last:
        one, two = order[position], order[position + 1]
        three, four = order[position + 2], order[position + 3]
        five, six = order[position + 4], order[position + 5]
        seven, eight = order[position + 6], order[position + 7]
        for child in range(width):
            counts[row, child] += (
                np.uint8(codes[one, child] == code)
                + np.uint8(codes[two, child] == code)
                + np.uint8(codes[three, child] == code)
                + np.uint8(codes[four, child] == code)
                + np.uint8(codes[five, child] == code)
                + np.uint8(codes[six, child] == code)
                + np.uint8(codes[seven, child] == code)
                + np.uint8(codes[eight, child] == code)
            )
        position += 8
    if position + 3 < last:
        one, two = order[position], order[position + 1]
        three, four = order[position + 2], order[position + 3]
        for child in range(width):
            counts[row, child] += (
                np.uint8(codes[one, child] == code)
                + np.uint8(codes[two, child] == code)
                + np.uint8(codes[three, child] == code)
                + np.uint8(codes[four, child] == code)
            )
        position += 4
    while position < last:
        one = order[position]
        for child in range(width):
            counts[row, child] += np.uint8(codes[one, child] == code)
        position += 1


@inlined
def fill(values: Any, row: int, value: Any) -> None:
    for child in range(values.shape[1]):
        values[row, child] = value


@inlined
def select_whole(codes: Any, sample: int, wholes: Any, bins: int, own: Any, row: int) -> None:
    """The whole of each child's own byte; three rows behind ``bins`` are read, not used."""
    for first in range(0, bins, 4):
        kept = np.uint8(first > 0)
        one, two = np.uint8(first), np.uint8(first + 1)
        three, four = np.uint8(first + 2), np.uint8(first + 3)
        for child in range(codes.shape[1]):
            own[row, child] = (
                own[row, child] * kept
                + wholes[first, child] * np.uint8(codes[sample, child] == one)
                + wholes[first + 1, child] * np.uint8(codes[sample, child] == two)
                + wholes[first + 2, child] * np.uint8(codes[sample, child] == three)
                + wholes[first + 3, child] * np.uint8(codes[sample, child] == four)
            )

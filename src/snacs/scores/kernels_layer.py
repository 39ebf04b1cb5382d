"""Compiled layer view: one parent (input filter or group) against all children at once.

The samples of a parent are sorted into (z, y) segments once (``kernels.sort_cells``); what remains
is, for every child, how its bins are spread over the segments. Children lie innermost, one byte per
bin, so that every step is a vector operation over children:

* a small cell is evaluated sample by sample: a and r are numbers of samples with an equal byte in
  the cell and in the segment, and Σ_cells rα/(r + α) = Σ_samples α/(r + α);
* a larger cell is evaluated plane by plane: the samples of a segment whose byte is v are counted in
  bytes (16 bits where a cell holds more than 255 samples), then there is one evaluation per
  segment and v.

Counts are exact; each evaluation is in single precision and flushed to double once per cell.
Memory per call: (largest number of segments in a cell + 1) · bins · BLOCK counts, besides the
(N, children) bytes that all parents share.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from snacs.scores.kernels import compiled, number_codes, sum_pair

PLANE_BINS = 32
"""Children with more bins than this are evaluated one by one: planes would be mostly empty."""
BLOCK = 512
"""Children at a time: the counts of a segment then stay in the first-level cache."""
COMPARE_COST = 0.08
"""Cost of comparing or adding one row of bytes, in evaluations of one row of children."""
LIMIT = np.float32(2**30)


@compiled
def number_rows(codes: Any) -> Any:
    """Dense numbers 0, 1, … within each row of ``codes`` (rows, N), and how many per row."""
    rows = codes.shape[0]
    numbers = np.empty(codes.shape, np.int32)
    counts = np.empty(rows, np.int64)
    for row in range(rows):
        numbers[row], counts[row] = number_codes(codes[row : row + 1])
    return numbers, counts


@compiled
def code_without(projection: Any, values: Any, directions: Any, shift: Any) -> Any:
    """Codes (directions, N) of the projection without the part of some inputs: rank-1 updates.

    ``projection`` (directions, N) and ``directions`` (inputs, directions) are in bins already.
    """
    count, samples = projection.shape
    codes = np.empty((count, samples), np.int32)
    rest = np.empty(samples, np.float32)
    for direction in range(count):
        for sample in range(samples):
            rest[sample] = projection[direction, sample]
        for row in range(len(values)):
            share = directions[row, direction]
            for sample in range(samples):
                rest[sample] -= share * values[row, sample]
        for sample in range(samples):
            floored = np.floor(rest[sample] + shift)
            codes[direction, sample] = np.int32(min(max(floored, -LIMIT), LIMIT))
    return codes


@compiled
def add_small(codes: Any, order: Any, ends: Any, start: int, edges: bool, total: Any) -> None:
    """Add one cell of few samples to ``total``, sample by sample."""
    children = codes.shape[1]
    stop = ends[-1]
    size = np.float32(stop - start)
    equal_cell = np.empty(children, np.uint8)
    equal_segment = np.empty(children, np.uint8)
    sums = np.zeros(children, np.float32)
    first = start
    for segment in range(len(ends)):
        last = ends[segment]
        length = np.float32(last - first)
        for position in range(first, last):
            own = codes[order[position]]
            equal_segment[:] = 0
            for other in range(first, last):
                row = codes[order[other]]
                for child in range(children):
                    equal_segment[child] += np.uint8(row[child] == own[child])
            equal_cell[:] = equal_segment
            for other in range(start, stop):
                if first <= other < last:
                    continue
                row = codes[order[other]]
                for child in range(children):
                    equal_cell[child] += np.uint8(row[child] == own[child])
            for child in range(children):
                seen = np.float32(equal_segment[child])
                observed = seen * size
                expected = np.float32(equal_cell[child]) * length
                if edges:
                    difference = observed - expected
                    sums[child] += difference * difference / (seen * (observed + expected))
                else:
                    sums[child] += expected / (observed + expected)
        first = last
    for child in range(children):
        if edges:
            total[child] += np.float64(sums[child]) / np.float64(size)
        else:
            total[child] += 2.0 * np.float64(size) - 4.0 * np.float64(sums[child])


@compiled
def add_large(
    codes: Any, order: Any, ends: Any, start: int, bins: int, edges: bool, counts: Any, total: Any
) -> None:
    """Add one cell of many samples to ``total``, plane by plane.

    ``counts`` (segments + 1, bins, children) is workspace of a type that holds the cell's size;
    its last entry receives the sums over segments.
    """
    children = codes.shape[1]
    size = np.float32(ends[-1] - start)
    whole = counts[len(ends)]
    whole[:bins] = 0
    one = counts.dtype.type(1)
    none = counts.dtype.type(0)
    first = start
    for segment in range(len(ends)):
        for code in range(bins):
            byte = np.uint8(code)
            plane = counts[segment, code]
            plane[:] = 0
            for position in range(first, ends[segment]):
                row = codes[order[position]]
                for child in range(children):
                    plane[child] += one if row[child] == byte else none
            for child in range(children):
                whole[code, child] += plane[child]
        first = ends[segment]
    sums = np.zeros(children, np.float32)
    for code in range(bins):
        if not whole[code].any():
            continue
        first = start
        for segment in range(len(ends)):
            length = np.float32(ends[segment] - first)
            first = ends[segment]
            for child in range(children):
                seen = np.float32(counts[segment, code, child])
                observed = seen * size
                expected = np.float32(whole[code, child]) * length
                difference = observed - expected
                # Both are whole numbers: where their sum is 0, so is the difference.
                term = difference * difference / max(observed + expected, np.float32(1))
                sums[child] += term * min(seen, np.float32(1)) if edges else term
    for child in range(children):
        total[child] += np.float64(sums[child]) / np.float64(size)


@compiled
def sum_children(codes: Any, bins: int, cells: Any, edges: bool) -> Any:
    """Σ (r − α)² / (r + α) for every child, from the bytes (N, children) of their bins (φ = 1)."""
    order, segment_end, _, cell_end, _, _ = cells
    children = codes.shape[1]
    total = np.zeros(children, np.float64)
    most = 0
    first = 0
    for cell in range(len(cell_end)):
        most = max(most, cell_end[cell] - first)
        first = cell_end[cell]
    width = min(BLOCK, children)
    bytes_ = np.empty((most + 1, bins, width), np.uint8)
    words = np.empty((most + 1, bins, width), np.uint16)
    for left in range(0, children, BLOCK):
        right = min(left + BLOCK, children)
        block = codes[:, left:right]
        start = 0
        first = 0
        for cell in range(len(cell_end)):
            ends = segment_end[first : cell_end[cell]]
            first = cell_end[cell]
            size = ends[-1] - start
            by_sample = size * (1 + COMPARE_COST * size)
            by_plane = bins * (len(ends) + COMPARE_COST * (size + len(ends)))
            if by_sample <= by_plane and size <= 255:
                add_small(block, order, ends, start, edges, total[left:right])
            elif size <= 255:
                space = bytes_[:, :, : right - left]
                add_large(block, order, ends, start, bins, edges, space, total[left:right])
            else:
                space = words[:, :, : right - left]
                add_large(block, order, ends, start, bins, edges, space, total[left:right])
            start = ends[-1]
    return total


@compiled
def sum_rows(
    x: Any, bins: Any, cells: Any, squares: Any, cellwise: int, decay: Any, edges: bool
) -> Any:
    """Σ φ (r − α)² / (r + α) for every child, one by one: any number of bins, any φ.

    ``squares`` are the squared bin means of X (children, bins), Y and Z.
    """
    x_squares, y_squares, z_squares = squares
    total = np.empty(len(x), np.float64)
    for row in range(len(x)):
        own = (x_squares[row], y_squares, z_squares)
        total[row] = sum_pair(x[row], bins[row], cells, own, cellwise, decay[row], edges)
    return total

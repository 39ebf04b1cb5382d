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
Children are cut into blocks of WIDTH, ordered by their number of bins, so that planes are few and
rarely empty and all workspace stays in the first-level cache. Memory per call: 3 · WIDTH bytes per
segment of the largest cell, besides the (N, children) bytes that all parents share.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from snacs.scores.kernels import compiled, number_codes, sum_pair

PLANE_BINS = 32
"""Children with more bins than this are evaluated one by one: planes would be mostly empty."""
WIDTH = 128
"""Children at a time."""
COMPARE_COST = 0.08
"""Cost of comparing or adding one row of bytes, in evaluations of one row of children."""
LIMIT = np.float32(2**30)


def pack_children(numbers: Any, bins: Any) -> Any:
    """Bytes for :func:`sum_children` from bin numbers (children, N).

    Returns the bytes (blocks, N, WIDTH), the largest number of bins of each block, and the place
    of every child among the blocks · WIDTH entries; places beyond the last child are padding.
    """
    children, samples = numbers.shape
    order = np.argsort(bins, kind="stable")
    width = min(WIDTH, -(-children // 32) * 32)
    blocks = -(-children // width)
    codes = np.zeros((blocks, samples, width), np.uint8)
    largest = np.ones(blocks, np.int64)
    for block in range(blocks):
        chosen = order[block * width : (block + 1) * width]
        codes[block, :, : len(chosen)] = numbers[chosen].T
        largest[block] = bins[chosen].max()
    place = np.empty(children, np.int64)
    place[order] = np.arange(children)
    return codes, largest, place


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
def count_equal(codes: Any, order: Any, first: int, last: int, own: Any, counts: Any) -> None:
    """Add to ``counts`` how many of the samples first … last agree with ``own``, child by child."""
    position = first
    while position + 1 < last:
        one, two = codes[order[position]], codes[order[position + 1]]
        for child in range(len(counts)):
            counts[child] += np.uint8(one[child] == own[child]) + np.uint8(two[child] == own[child])
        position += 2
    if position < last:
        row = codes[order[position]]
        for child in range(len(counts)):
            counts[child] += np.uint8(row[child] == own[child])


@compiled
def add_small(codes: Any, order: Any, ends: Any, start: int, edges: bool, total: Any) -> None:
    """Add one cell of few samples to ``total``, sample by sample."""
    children = codes.shape[1]
    stop = ends[-1]
    size = np.float32(stop - start)
    in_cell = np.empty(children, np.uint8)
    in_segment = np.empty(children, np.uint8)
    sums = np.zeros(children, np.float32)
    first = start
    for segment in range(len(ends)):
        last = ends[segment]
        length = np.float32(last - first)
        for position in range(first, last):
            own = codes[order[position]]
            in_segment[:] = 0
            count_equal(codes, order, first, last, own, in_segment)
            in_cell[:] = in_segment
            count_equal(codes, order, start, first, own, in_cell)
            count_equal(codes, order, last, stop, own, in_cell)
            if edges:
                for child in range(children):
                    seen = np.float32(in_segment[child])
                    observed = seen * size
                    expected = np.float32(in_cell[child]) * length
                    difference = observed - expected
                    sums[child] += difference * difference / (seen * (observed + expected))
            else:
                for child in range(children):
                    observed = np.float32(in_segment[child]) * size
                    expected = np.float32(in_cell[child]) * length
                    sums[child] += expected / (observed + expected)
        first = last
    for child in range(children):
        if edges:
            total[child] += np.float64(sums[child]) / np.float64(size)
        else:
            total[child] += 2.0 * np.float64(size) - 4.0 * np.float64(sums[child])


@compiled
def count_code(codes: Any, order: Any, first: int, last: int, code: Any, counts: Any) -> None:
    """Count the samples first … last whose byte is ``code``, child by child."""
    counts[:] = 0
    position = first
    while position + 3 < last:
        one, two = codes[order[position]], codes[order[position + 1]]
        three, four = codes[order[position + 2]], codes[order[position + 3]]
        for child in range(len(counts)):
            counts[child] += (
                np.uint8(one[child] == code)
                + np.uint8(two[child] == code)
                + np.uint8(three[child] == code)
                + np.uint8(four[child] == code)
            )
        position += 4
    while position < last:
        row = codes[order[position]]
        for child in range(len(counts)):
            counts[child] += np.uint8(row[child] == code)
        position += 1


@compiled
def add_large(
    codes: Any, order: Any, ends: Any, start: int, bins: int, edges: bool, counts: Any, total: Any
) -> None:
    """Add one cell of many samples to ``total``, plane by plane.

    ``counts`` (segments + 1, children) is workspace of a type that holds the cell's size; its last
    row receives the sums over segments.
    """
    children = codes.shape[1]
    size = np.float32(ends[-1] - start)
    sums = np.zeros(children, np.float32)
    whole = counts[len(ends)]
    for code in range(bins):
        whole[:] = 0
        first = start
        for segment in range(len(ends)):
            plane = counts[segment]
            count_code(codes, order, first, ends[segment], np.uint8(code), plane)
            first = ends[segment]
            for child in range(children):
                whole[child] += plane[child]
        if not whole.any():
            continue
        first = start
        for segment in range(len(ends)):
            plane = counts[segment]
            length = np.float32(ends[segment] - first)
            first = ends[segment]
            if edges:
                for child in range(children):
                    seen = np.float32(plane[child])
                    observed = seen * size
                    expected = np.float32(whole[child]) * length
                    difference = observed - expected
                    both = max(observed + expected, np.float32(1))
                    sums[child] += difference * difference * min(seen, np.float32(1)) / both
            else:
                for child in range(children):
                    observed = np.float32(plane[child]) * size
                    expected = np.float32(whole[child]) * length
                    difference = observed - expected
                    # Whole numbers: where their sum is 0 so is the difference, else it is above 1.
                    sums[child] += difference * difference / max(observed + expected, np.float32(1))
    for child in range(children):
        total[child] += np.float64(sums[child]) / np.float64(size)


@compiled
def sum_children(codes: Any, bins: Any, cells: Any, edges: bool) -> Any:
    """Σ (r − α)² / (r + α) for every child (φ = 1).

    ``codes`` (blocks, N, WIDTH) are the bytes of their bins, ``bins`` (blocks,) says how many bins
    the children of a block have at most; the result has shape (blocks, WIDTH).
    """
    order, segment_end, _, cell_end, _, _ = cells
    blocks, _, width = codes.shape
    total = np.zeros((blocks, width), np.float64)
    most = 0
    first = 0
    for cell in range(len(cell_end)):
        most = max(most, cell_end[cell] - first)
        first = cell_end[cell]
    small_counts = np.empty((most + 1, width), np.uint8)
    large_counts = np.empty((most + 1, width), np.uint16)
    for block in range(blocks):
        start = 0
        first = 0
        for cell in range(len(cell_end)):
            ends = segment_end[first : cell_end[cell]]
            first = cell_end[cell]
            size = ends[-1] - start
            by_sample = size * (1 + COMPARE_COST * size)
            by_plane = bins[block] * (len(ends) + COMPARE_COST * (size + len(ends)))
            own, sums = codes[block], total[block]
            if size > 255:
                add_large(own, order, ends, start, bins[block], edges, large_counts, sums)
            elif by_sample > by_plane:
                add_large(own, order, ends, start, bins[block], edges, small_counts, sums)
            else:
                add_small(own, order, ends, start, edges, sums)
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

"""Compiled layer view: one parent (input filter or group) against all children at once.

The samples of a parent are sorted into (z, y) segments once (``kernels.sort_cells``); what remains
is, for every child, how its bins are spread over the segments, cell by cell (``kernels_cells``).

Children are cut into blocks of WIDTH, ordered by their number of bins, so that planes are few.
Memory per call: 8 · WIDTH bytes per segment of the largest cell, which stays in the caches, besides
the (N, children) bytes that all parents share.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from snacs.scores.kernels import compiled, number_codes, number_through, sort_cells, sum_pair
from snacs.scores.kernels_cells import SMALL, add_large, add_small, flush
from snacs.scores.parallel import Threads

PLANE_BINS = 256
"""Children with more bins than a byte can tell are evaluated one by one."""
WIDTH = 512
"""Children at a time."""
ALIGNED = 64
"""Bytes of a cache line: rows that begin on one are read without touching two."""
HELD = 128
"""Samples whose overlaps are summed in single precision before they are flushed."""
LIMIT = np.float32(2**30)
FEW = 1024
"""Cells of a filter or group up to which they are numbered through a table in the caches."""


def pack_children(numbers: Any, bins: Any, threads: Threads, width: int = WIDTH) -> Any:
    """Bytes for :func:`sum_children` from bin numbers (children, N).

    Returns
    -------
    codes : (blocks, N, WIDTH) bytes; a child's bins are numbered by falling frequency
    most : (blocks,) bins of the child that has most
    place : of every child among the blocks · WIDTH entries; entries beyond the last child are idle
    """
    children, samples = numbers.shape
    order = np.argsort(bins, kind="stable")
    width = width if width < WIDTH else min(WIDTH, -(-children // 32) * 32)
    blocks = -(-children // width)
    room = np.zeros(blocks * samples * width + ALIGNED, np.uint8)
    first = -room.ctypes.data % ALIGNED
    codes = room[first : first + blocks * samples * width].reshape(blocks, samples, width)
    most = np.empty(blocks, np.int64)

    def pack(block: int) -> None:
        chosen = order[block * width : (block + 1) * width]
        most[block] = bins[chosen[-1]]
        rank_bins(numbers, bins, chosen, codes[block])

    threads.map(pack, range(blocks))
    place = np.empty(children, np.int64)
    place[order] = np.arange(children)
    return codes, most, place


@compiled
def rank_bins(numbers: Any, bins: Any, chosen: Any, codes: Any) -> None:
    """Bin numbers of the chosen rows as bytes, a row per column: 0 is its most frequent bin."""
    samples = numbers.shape[1]
    counts = np.empty(bins[chosen[-1]], np.int32)
    rank = np.empty(bins[chosen[-1]], np.uint8)
    for column in range(len(chosen)):
        row = chosen[column]
        for code in range(bins[row]):
            counts[code] = 0
        for sample in range(samples):
            counts[numbers[row, sample]] += 1
        for place in range(bins[row]):
            best = 0
            for code in range(1, bins[row]):
                if counts[code] > counts[best]:
                    best = code
            rank[best] = place
            counts[best] = -1
        for sample in range(samples):
            codes[sample, column] = rank[numbers[row, sample]]


@compiled
def number_groups(
    values: Any, starts: Any, shift: Any, first_group: Any, last: Any, numbers: Any, counts: Any
) -> None:
    """Floor (rows, N) values in bins and number the cells of each group of contiguous rows.

    Group g has the rows starts[g] … starts[g + 1]; one row per group is the scalar case. Dense
    numbers of the groups first_group … last go to ``numbers`` (groups, N), how many cells each has
    to ``counts``.
    """
    samples = values.shape[1]
    table, keys = np.empty(FEW, np.int32), np.empty(samples, np.int64)
    for group in range(first_group, last):
        first = starts[group]
        codes = np.empty((starts[group + 1] - first, samples), np.int32)
        for row in range(len(codes)):
            floor_row(values[first + row], shift, codes[row])
        counts[group] = number_into(codes, table, keys, numbers[group])


@compiled
def floor_row(values: Any, shift: Any, codes: Any) -> None:
    for sample in range(len(values)):
        floored = np.floor(values[sample] + shift)
        codes[sample] = np.int32(min(max(floored, -LIMIT), LIMIT))


@compiled
def number_into(codes: Any, table: Any, keys: Any, numbers: Any) -> Any:
    """``number_codes``, and how many there are; few codes go through ``table``."""
    dims, samples = codes.shape
    span: Any = np.int64(1)
    for dim in range(dims):
        low, high = codes[dim, 0], codes[dim, 0]
        for sample in range(samples):
            low, high = min(low, codes[dim, sample]), max(high, codes[dim, sample])
        width = np.int64(high) - np.int64(low) + 1
        if width > len(table) // span:
            own, count = number_codes(codes)
            numbers[:] = own
            return count
        for sample in range(samples):
            before = keys[sample] * width if dim > 0 else 0
            keys[sample] = before + (codes[dim, sample] - low)
        span *= width
    table[:span] = 0
    return number_through(table, keys, numbers)


@compiled
def number_without(projection: Any, values: Any, directions: Any, shift: Any) -> Any:
    """Cell numbers of the projection without the part of some inputs: rank-1 updates.

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
    return number_codes(codes)


@compiled
def sum_children(codes: Any, highest: Any, cells: Any, edges: bool) -> Any:
    """Σ (r − α)² / (r + α) for every child (φ = 1), (blocks, WIDTH).

    ``codes`` is what :func:`pack_children` made, ``highest`` (blocks, N) the largest byte of each
    of its rows: rare bins are looked for only where they are. ``cells`` is what ``sort_cells`` made
    of the parent.
    """
    order, segment_end, _, cell_end, _, _ = cells
    blocks, _, width = codes.shape
    total = np.zeros((blocks, width), np.float64)
    rows = 1
    first = 0
    for cell in range(len(cell_end)):
        rows = max(rows, cell_end[cell] - first)
        first = cell_end[cell]
    seen, left = np.empty((rows + 1, width), np.uint8), np.empty((rows + 1, width), np.uint8)
    wholes, own = np.empty((PLANE_BINS + 3, width), np.uint8), np.empty((4, width), np.uint8)
    shares = np.empty(rows + 1, np.float32)
    whole, sums = np.empty((2, width), np.float32), np.zeros((2, width), np.float32)
    wide_seen = np.empty((rows + 1, width), np.float32)
    wide_left = np.empty((rows, width), np.float32)
    for block in range(blocks):
        own_codes = codes[block]
        start = 0
        first = 0
        held = 0
        by_sample = 0
        for cell in range(len(cell_end)):
            ends = segment_end[first : cell_end[cell]]
            first = cell_end[cell]
            bins: Any = np.int64(1)
            for position in range(start, ends[-1]):
                bins = max(bins, np.int64(highest[block, order[position]]) + np.int64(1))
            if ends[-1] - start <= SMALL:
                by_sample += add_small(
                    own_codes,
                    order,
                    ends,
                    start,
                    bins,
                    edges,
                    seen,
                    left,
                    wholes,
                    own,
                    shares,
                    whole,
                    sums,
                )
            else:
                add_large(
                    own_codes,
                    order,
                    ends,
                    start,
                    bins,
                    edges,
                    wide_seen,
                    wide_left,
                    own,
                    shares,
                    whole,
                    sums,
                )
            held += ends[-1] - start
            start = ends[-1]
            if held >= HELD:
                flush(sums, held, by_sample, edges, total, block)
                held = 0
                by_sample = 0
        flush(sums, held, by_sample, edges, total, block)
    return total


@compiled
def sum_parents(
    projection: Any,
    inputs: Any,
    directions: Any,
    starts: Any,
    shift: Any,
    y: Any,
    y_bins: Any,
    codes: Any,
    highest: Any,
    edges: bool,
    first: int,
    last: int,
    total: Any,
    found: Any,
) -> None:
    """:func:`sum_children` of the parents first … last, from their projection to their sums.

    Parent p has the inputs starts[p] … starts[p + 1]; ``y`` (parents, N) are its bin numbers. What
    is found is put into the rows first … last of ``total`` (parents, blocks, WIDTH) and ``found``
    (parents, 4): cells of Z, singletons, informative samples, segments.
    """
    for parent in range(first, last):
        own = slice(starts[parent], starts[parent + 1])
        z, cells_z = number_without(projection, inputs[own], directions[own], shift)
        cells = sort_cells(z, cells_z, y[parent], y_bins[parent])
        total[parent] = sum_children(codes, highest, cells, edges)
        found[parent, 0] = cells_z
        found[parent, 1] = cells[5]
        found[parent, 2] = len(cells[0])
        found[parent, 3] = len(cells[1])


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

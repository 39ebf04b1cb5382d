"""Compiled layer view on wide vectors: one cell of the conditioning set, 64 children at a time.

The same sums as ``kernels_cells`` (full support), held in registers by ``vectors``; a cell is
evaluated by bin or by sample, whichever is expected to need fewer cycles.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from snacs.scores.kernels import compiled, inlined, sort_cells
from snacs.scores.kernels_cells import flush
from snacs.scores.kernels_layer import HELD, number_without
from snacs.scores.vectors import CHILDREN
from snacs.scores.vectors_adding import add_bin, add_sample, add_wide, add_wide_bin
from snacs.scores.vectors_counting import (
    STRAIGHT,
    count_four,
    count_pair,
    count_pairs,
    count_rest,
    count_through,
    gather_rows,
)

MOST = 255
"""Samples of a cell whose counts a byte holds."""
HALVES = 16
"""Cells of at most so many bins are counted two bins at a time."""
LONG = 16
"""After so many bins of one cell the sums are flushed: single precision loses too much in more."""
STRAIGHT_FROM = 8
"""Cells of more samples, in blocks of at most STRAIGHT bins, are counted in one pass without a copy
of their rows; those of fewer may be better off by sample, which passes often."""
EVALUATION = 18
"""What an evaluation of 64 children costs, in compares of 64 bytes."""


@inlined
def by_sample(samples: int, segments: int, bins: int) -> bool:
    """Whether comparing all samples of a cell with each other is cheaper than planes of bins."""
    each = samples * (samples + EVALUATION + 2)
    return each < samples * bins // 2 + bins * EVALUATION * segments


@inlined
def count_segment(
    rows: Any, first: Any, last: Any, bins: Any, counts: Any, at: Any, stride: Any
) -> None:
    """How many of the rows first … last fall into each bin, at most MOST.

    Up to three bins behind the last are written to, too.
    """
    code: Any = 1
    if bins <= HALVES:
        while bins - code > 2:
            count_pairs(rows, first, last, code, counts, at + code * stride, stride)
            code += 4
        if code < bins:
            count_pair(rows, first, last, code, counts, at + code * stride, stride)
    while code < bins:
        count_four(rows, first, last, code, counts, at + code * stride, stride)
        code += 4
    count_rest(counts, at, stride, bins, last - first)


@inlined
def clear(values: Any, first: Any, last: Any) -> None:
    for place in range(first, last):
        values[place] = 0


@inlined
def add_small(
    codes: Any,
    base: Any,
    order: Any,
    start: Any,
    segment_end: Any,
    first: Any,
    last: Any,
    bins: Any,
    rows: Any,
    counts: Any,
    shares: Any,
    sums: Any,
    total: Any,
    block: Any,
) -> None:
    """Add the overlaps Σ rα / (r + α) of a cell of at most MOST samples to ``sums``.

    Where the cell has many bins, what has come together by then goes on into ``total[block]``.

    ``codes`` has 64 bytes per sample from ``base`` on. The cell has the segments first … last, and
    its first sample is order[start]; there are at most ``bins`` bins. ``rows``, ``counts`` and
    ``shares`` are room to work in.
    """
    stop = np.int64(segment_end[last - 1])
    size, segments = stop - start, last - first
    straight = bins <= STRAIGHT and size > STRAIGHT_FROM
    if not straight:
        bins = gather_rows(codes, base, order, start, stop, rows) + 1
    sampled = not straight and by_sample(size, segments, bins)
    stride = segments * CHILDREN
    begin: Any = np.int64(0)
    for segment in range(segments):
        end = np.int64(segment_end[first + segment]) - start
        share = np.float32(end - begin) / np.float32(size)
        at = segment * CHILDREN
        if sampled:
            for own in range(begin, end):
                add_sample(rows, own, begin, end, size, share, sums)
        elif straight:
            shares[segment] = share
            count_through(codes, base, order, start + begin, start + end, counts, at, stride)
        else:
            shares[segment] = share
            count_segment(rows, begin, end, bins, counts, at, stride)
        begin = end
    if sampled:
        return
    for code in range(bins):
        add_bin(counts, code * stride, segments, shares, sums)
        if code % LONG == LONG - 1:
            flush(sums, 0, 0, False, total, block)


@inlined
def add_large(
    codes: Any,
    base: Any,
    order: Any,
    start: Any,
    segment_end: Any,
    first: Any,
    last: Any,
    bins: Any,
    rows: Any,
    counts: Any,
    totals: Any,
    shares: Any,
    sums: Any,
    total: Any,
    block: Any,
) -> None:
    """The same for a cell of any size, whose counts are floats (``totals``)."""
    size, segments = np.int64(segment_end[last - 1]) - start, last - first
    stride = segments * CHILDREN
    clear(totals, 0, bins * stride)
    begin = start
    for segment in range(segments):
        end = np.int64(segment_end[first + segment])
        shares[segment] = np.float32(end - begin) / np.float32(size)
        while begin < end:
            stop = min(begin + MOST, end)
            gather_rows(codes, base, order, begin, stop, rows)
            count_segment(rows, np.int64(0), stop - begin, bins, counts, 0, CHILDREN)
            add_wide(counts, bins, totals, segment * CHILDREN, stride)
            begin = stop
    for code in range(bins):
        add_wide_bin(totals, code * stride, segments, shares, sums)
        if code % LONG == LONG - 1:
            flush(sums, 0, 0, False, total, block)


@compiled
def sum_children_wide(codes: Any, bins: Any, cells: Any) -> Any:
    """``kernels_layer.sum_children`` with full support for blocks of 64 children."""
    order, segment_end, _, cell_end, _, _ = cells
    blocks, samples, width = codes.shape
    total = np.zeros((blocks, width), np.float64)
    most: Any = np.int64(1)
    first: Any = np.int64(0)
    for cell in range(len(cell_end)):
        most = max(most, cell_end[cell] - first)
        first = np.int64(cell_end[cell])
    # Either way of counting writes to a few bins behind the last.
    room = (np.int64(bins.max()) + STRAIGHT) * most * width
    rows, counts = np.empty(MOST * width, np.uint8), np.empty(room, np.uint8)
    totals, shares = np.empty(room, np.float32), np.empty(most, np.float32)
    sums = np.zeros((2, width), np.float32)
    for block in range(blocks):
        start: Any = np.int64(0)
        first = np.int64(0)
        held: Any = 0
        base = block * samples * width
        for cell in range(len(cell_end)):
            last = np.int64(cell_end[cell])
            stop = np.int64(segment_end[last - 1])
            if stop - start <= MOST:
                add_small(
                    codes,
                    base,
                    order,
                    start,
                    segment_end,
                    first,
                    last,
                    np.int64(bins[block]),
                    rows,
                    counts,
                    shares,
                    sums,
                    total,
                    block,
                )
            else:
                add_large(
                    codes,
                    base,
                    order,
                    start,
                    segment_end,
                    first,
                    last,
                    bins[block],
                    rows,
                    counts,
                    totals,
                    shares,
                    sums,
                    total,
                    block,
                )
            held += stop - start
            start, first = stop, last
            if held >= HELD:
                flush(sums, held, 0, False, total, block)
                held = 0
        flush(sums, held, 0, False, total, block)
    return total


@compiled
def sum_parents_wide(
    projection: Any,
    inputs: Any,
    directions: Any,
    starts: Any,
    shift: Any,
    y: Any,
    y_bins: Any,
    codes: Any,
    bins: Any,
    first: Any,
    last: Any,
    total: Any,
    found: Any,
) -> None:
    """``kernels_layer.sum_parents`` with full support for blocks of 64 children."""
    for parent in range(first, last):
        own = slice(starts[parent], starts[parent + 1])
        z, cells_z = number_without(projection, inputs[own], directions[own], shift)
        cells = sort_cells(z, cells_z, y[parent], y_bins[parent])
        total[parent] = sum_children_wide(codes, bins, cells)
        found[parent, 0] = cells_z
        found[parent, 1] = cells[5]
        found[parent, 2] = len(cells[0])
        found[parent, 3] = len(cells[1])

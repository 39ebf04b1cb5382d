"""Compiled counting shared by both views: cell numbers, sorting into cells, one pair at a time.

Kernels are free functions on arrays: serial, without the interpreter lock, cached on disk.
Parallelism is a thread pool outside (``parallel``), so results never depend on the thread count.
All integers stay below 2^62: nothing relies on wrapping, and the kernels also run uncompiled
(``NUMBA_DISABLE_JIT=1``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numpy as np
from numpy.typing import NDArray

F = TypeVar("F", bound=Callable[..., Any])

LARGEST_SPAN = 2**61
"""Packed keys stay below this, so that they never overflow 64 bits."""
DIRECT_SPAN = 1 << 16
"""Keys below this are numbered through a plain table, larger ones through open addressing."""
TABLE_SHARE = 4
"""Samples are sorted through a table of (z, y) with at most so many entries per sample."""


def compiled(function: F) -> F:
    """The one way kernels are compiled: no fast-math, since counts and bins must be exact."""
    return cast(F, numba.njit(nogil=True, cache=True, error_model="numpy")(function))


def inlined(function: F) -> F:
    """``compiled``, and always a part of its caller.

    For what is called for every cell of every block: handing over a dozen arrays, seven numbers
    each, costs more than a small cell does.
    """
    make = numba.njit(nogil=True, cache=True, error_model="numpy", forceinline=True)
    return cast(F, make(function))


def plain(values: Any) -> NDArray[np.float32]:
    """A contiguous, writable float32 array for kernels that only read it; a copy if it must be.

    Evidence may be memory-mapped and read-only, in any order; numba would compile every kernel
    again for each such kind of array.
    """
    return np.require(values, np.float32, ["C", "W", "E"])


@compiled
def number_through(table: Any, keys: Any, numbers: Any) -> Any:
    """Put dense numbers of the keys into ``numbers``; ``table`` must be 0. Returns how many."""
    count = 0
    for sample in range(len(keys)):
        key = keys[sample]
        if table[key] == 0:  # not seen yet; number + 1 otherwise
            count += 1
            table[key] = count
        numbers[sample] = table[key] - 1
    return count


@compiled
def number_keys(keys: Any, span: int) -> Any:
    """Dense numbers 0, 1, … for keys in [0, span), in order of first appearance, and how many."""
    samples = len(keys)
    numbers = np.empty(samples, np.int32)
    if span <= DIRECT_SPAN:
        return numbers, number_through(np.zeros(span, np.int32), keys, numbers)
    count = 0
    size = 4
    while size < 2 * samples:
        size *= 2
    table = np.zeros(size, np.int32)
    owner = np.empty(size, np.int64)
    for sample in range(samples):
        key = keys[sample]
        mixed = (key & 0xFFFFFF) * 1640531527 + (key >> 24) % 0xFFFFFF * 1013904223
        slot = (mixed >> 16) & (size - 1)
        while table[slot] > 0 and owner[slot] != key:
            slot = (slot + 1) & (size - 1)
        if table[slot] == 0:
            count += 1
            table[slot] = count
            owner[slot] = key
        numbers[sample] = table[slot] - 1
    return numbers, count


@compiled
def number_codes(codes: Any) -> Any:
    """Dense numbers for the columns of ``codes`` (dims, N): equal numbers, equal columns. Exact."""
    dims, samples = codes.shape
    keys = np.zeros(samples, np.int64)
    span = 1
    for dim in range(dims):
        low: Any = np.int64(codes[dim, 0])
        high = low
        for sample in range(samples):
            low = min(low, np.int64(codes[dim, sample]))
            high = max(high, np.int64(codes[dim, sample]))
        width = high - low + 1
        if span > LARGEST_SPAN // width:
            numbers, used = number_keys(keys, span)
            span = used
            for sample in range(samples):
                keys[sample] = numbers[sample]
        for sample in range(samples):
            keys[sample] = keys[sample] * width + (np.int64(codes[dim, sample]) - low)
        span *= width
    return number_keys(keys, span)


@compiled
def order_by(codes: Any, bins: int) -> Any:
    """Samples in order of their code 0 … bins − 1, equal ones by index: a counting sort."""
    start = np.zeros(bins + 1, np.int32)
    for sample in range(len(codes)):
        start[codes[sample] + 1] += 1
    for code in range(bins):
        start[code + 1] += start[code]
    order = np.empty(len(codes), np.int32)
    for sample in range(len(codes)):
        order[start[codes[sample]]] = sample
        start[codes[sample]] += 1
    return order


@compiled
def sort_by_table(z: Any, cells: int, y: Any, bins: int) -> Any:
    """:func:`sort_cells` through one table of (z, y), where that is small: one counting sort."""
    samples = len(z)
    table = np.zeros(cells * bins, np.int32)
    for sample in range(samples):
        table[z[sample] * bins + y[sample]] += 1
    segment_end = np.empty(cells * bins, np.int32)
    segment_bin = np.empty(cells * bins, np.int32)
    cell_end = np.empty(cells, np.int32)
    cell_number = np.empty(cells, np.int32)
    segments = kept = end = singletons = 0
    for cell in range(cells):
        begin = segments
        size = 0
        for code in range(bins):
            count = table[cell * bins + code]
            table[cell * bins + code] = end + size  # where its samples begin
            if count > 0:
                size += count
                segment_end[segments] = end + size
                segment_bin[segments] = code
                segments += 1
        singletons += size == 1
        if segments - begin > 1:
            end += size
            cell_end[kept] = segments
            cell_number[kept] = cell
            kept += 1
        else:
            segments = begin
            for code in range(bins):
                table[cell * bins + code] = -1
    order = np.empty(end, np.int32)
    for sample in range(samples):
        key = z[sample] * bins + y[sample]
        if table[key] >= 0:
            order[table[key]] = sample
            table[key] += 1
    return (
        order,
        segment_end[:segments],
        segment_bin[:segments],
        cell_end[:kept],
        cell_number[:kept],
        singletons,
    )


@compiled
def sort_cells(z: Any, cells: int, y: Any, bins: int) -> Any:
    """Sort samples by (z, y); cells in which y is constant contribute exactly 0 and are dropped.

    Returns
    -------
    order : samples of informative cells, by z, then y
    segment_end, segment_bin : one entry per run of equal (z, y): its end in ``order``, its y
    cell_end, cell_number : one entry per informative cell: the end of its segments, its z
    singletons : samples that are alone in their cell
    """
    samples = len(z)
    if cells * bins <= TABLE_SHARE * samples:
        return sort_by_table(z, cells, y, bins)
    by_y = order_by(y, bins)
    first = np.zeros(cells + 1, np.int32)
    one_of = np.empty(cells, np.int32)
    varies = np.zeros(cells, np.uint8)
    for sample in range(samples):
        cell = z[sample]
        if first[cell + 1] == 0:
            one_of[cell] = y[sample]
        first[cell + 1] += 1
        varies[cell] |= np.uint8(one_of[cell] != y[sample])
    singletons = 0
    for cell in range(cells):
        singletons += first[cell + 1] == 1
        first[cell + 1] = first[cell] + first[cell + 1] * varies[cell]
    order = np.empty(first[cells], np.int32)
    for position in range(samples):
        sample = by_y[position]
        cell = z[sample]
        if varies[cell] != 0:
            order[first[cell]] = sample
            first[cell] += 1  # from here on where the cell ends
    return order, *_segments(order, first, varies, y), singletons


@compiled
def _segments(order: Any, ends: Any, varies: Any, y: Any) -> Any:
    """Runs of equal (z, y) in ``order``; cells that vary end at ``ends``."""
    segment_end = np.empty(len(order), np.int32)
    segment_bin = np.empty(len(order), np.int32)
    cell_end = np.empty(len(varies), np.int32)
    cell_number = np.empty(len(varies), np.int32)
    segments = kept = start = 0
    for cell in range(len(varies)):
        if varies[cell] == 0:
            continue
        for position in range(start, ends[cell]):
            code = y[order[position]]
            if position == start or code != segment_bin[segments - 1]:
                segment_bin[segments] = code
                segments += 1
            segment_end[segments - 1] = position + 1
        start = ends[cell]
        cell_end[kept] = segments
        cell_number[kept] = cell
        kept += 1
    return segment_end[:segments], segment_bin[:segments], cell_end[:kept], cell_number[:kept]


@compiled
def scale_cell(squares: float, cellwise: int, decay: float) -> Any:
    """φ of a cell from q = ‖(x̄, ȳ, z̄)‖²; see ``scaling.Cellwise``."""
    if cellwise == 0:
        return 1.0
    if cellwise == 1:
        return np.sqrt(squares)
    return np.exp(-decay * squares)


@compiled
def sum_pair(
    x: Any, bins: int, cells: Any, squares: Any, cellwise: int, decay: float, edges: bool
) -> float:
    """Σ φ · (r − α)² / (r + α) over the cells of one pair; divided by 2N it is the score.

    ``cells`` is what :func:`sort_cells` returned, ``squares`` the squared norms of the bin means
    of X, Y and Z, indexed by code (not read where φ does not vary by cell).
    """
    order, segment_end, segment_bin, cell_end, cell_number, _ = cells
    x_squares, y_squares, z_squares = squares
    in_cell = np.zeros(bins, np.int32)
    in_segment = np.zeros(bins, np.int32)
    touched = np.empty(bins, np.int32)
    total = 0.0
    start = 0
    segment = 0
    for cell in range(len(cell_end)):
        stop = segment_end[cell_end[cell] - 1]
        seen = 0
        for position in range(start, stop):
            code = x[order[position]]
            if in_cell[code] == 0:
                touched[seen] = code
                seen += 1
            in_cell[code] += 1
        size = stop - start
        while segment < cell_end[cell]:
            for position in range(start, segment_end[segment]):
                in_segment[x[order[position]]] += 1
            length = segment_end[segment] - start
            start = segment_end[segment]
            for index in range(seen):
                code = touched[index]
                observed = float(in_segment[code]) * size
                expected = float(in_cell[code]) * length
                in_segment[code] = 0
                if edges and observed == 0.0:
                    continue
                scale = 1.0
                if cellwise != 0:
                    square = x_squares[code] + y_squares[segment_bin[segment]]
                    scale = scale_cell(square + z_squares[cell_number[cell]], cellwise, decay)
                difference = observed - expected
                total += scale * difference * difference / ((observed + expected) * size)
            segment += 1
        for index in range(seen):
            in_cell[touched[index]] = 0
    return total


@compiled
def bin_squares(codes: Any, bins: int, values: Any) -> Any:
    """Squared norm of the mean of ``values`` (dims, N) over each bin."""
    counts = np.zeros(bins, np.int64)
    for sample in range(len(codes)):
        counts[codes[sample]] += 1
    squares = np.zeros(bins, np.float64)
    sums = np.empty(bins, np.float64)
    for dim in range(values.shape[0]):
        for code in range(bins):
            sums[code] = 0.0
        for sample in range(len(codes)):
            sums[codes[sample]] += values[dim, sample]
        for code in range(bins):
            if counts[code] > 0:
                mean = sums[code] / counts[code]
                squares[code] += mean * mean
    return squares

"""Compiled child view: all filters that read one input channel.

For a filter i and its input channel j, Y = Σ_k w[k] · window[k] is the kernel's contribution, X the
output, Z = X − Y. Since X = Y + Z, the bins of X and Z differ by little: with d = bin(X) − bin(Z)
the three-way table over (z, d, y) is small and dense enough to be counted in the first-level cache,
and for a given z the numbers d name the bins of X. Only its span is cleared and read.

Memory per thread: kernel · N + 5 N numbers of 4 bytes and one table of at most TABLE_LIMIT counts.
Pairs whose table would be larger (very small widths, outliers) are sorted into cells instead.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from snacs.scores.kernels import (
    bin_squares,
    compiled,
    number_codes,
    scale_cell,
    sort_cells,
    sum_pair,
)

TABLE_LIMIT = 1 << 18
"""Counts of a dense table, at most: 1 MiB, which stays in the second-level cache."""
LIMIT = np.float32(2**30)
"""Codes saturate here, as in ``hashing.CODE_LIMIT``."""


@compiled
def contribute(window: Any, weights: Any, out: Any) -> None:
    """Write Σ_k weights[k] · window[k], added up in the order of k."""
    for sample in range(len(out)):
        out[sample] = weights[0] * window[0, sample]
    for tap in range(1, len(weights)):
        weight = weights[tap]
        for sample in range(len(out)):
            out[sample] += weight * window[tap, sample]


@compiled
def contribute_group(windows: Any, weights: Any) -> Any:
    """What some channels add to each of some filters: (channels, kernel, N) → (filters, N)."""
    filters, channels, _ = weights.shape
    total = np.zeros((filters, windows.shape[2]), np.float32)
    part = np.empty(windows.shape[2], np.float32)
    for index in range(filters):
        for channel in range(channels):
            contribute(windows[channel], weights[index, channel], part)
            for sample in range(len(part)):
                total[index, sample] += part[sample]
    return total


@compiled
def code_bins(values: Any, inverse: Any, shift: Any, out: Any) -> None:
    """⌊value / ε + b / ε⌋, saturated; the same operations as ``hashing.bin_codes``."""
    for sample in range(len(values)):
        scaled = np.floor(values[sample] * inverse + shift)
        out[sample] = np.int32(min(max(scaled, -LIMIT), LIMIT))


@compiled
def span_of(codes: Any) -> Any:
    """Smallest code, and the number of codes from there to the largest."""
    low = codes[0]
    high = codes[0]
    for sample in range(len(codes)):
        low = min(low, codes[sample])
        high = max(high, codes[sample])
    return np.int64(low), np.int64(high) - np.int64(low) + 1


@compiled
def square_bins(codes: Any, low: int, span: int, values: Any) -> Any:
    """Squared mean of ``values`` over each bin low … low + span; 0 for empty bins."""
    sums = np.zeros(span, np.float64)
    counts = np.zeros(span, np.int64)
    for sample in range(len(codes)):
        code = codes[sample] - low
        sums[code] += values[sample]
        counts[code] += 1
    for code in range(span):
        if counts[code] > 0:
            mean = sums[code] / counts[code]
            sums[code] = mean * mean
    return sums


@compiled
def sum_table(
    table: Any, shape: Any, squares: Any, cellwise: int, decay: float, edges: bool, found: Any
) -> float:
    """Σ φ · (r − α)² / (r + α) over a (z, d, y) table of counts, which is cleared.

    ``squares`` are the squared bin means of x = z + d, of y and of z (not read where φ does not
    vary by cell). Occupancy is added to ``found``.
    """
    depth, width, bins = shape
    x_squares, y_squares, z_squares = squares
    least = 1 if edges else 0
    sums = np.zeros(bins, np.float64)
    in_y = np.zeros(bins, np.int64)
    y_seen = np.zeros(bins, np.int64)
    in_x = np.zeros(width, np.int64)
    x_seen = np.zeros(depth + width, np.int64)
    for z in range(depth):
        in_y[:] = 0
        size = np.int64(0)
        for d in range(width):
            row = table[(z * width + d) * bins : (z * width + d + 1) * bins]
            count = np.int64(0)
            for y in range(bins):
                count += row[y]
                in_y[y] += row[y]
            in_x[d] = count
            x_seen[z + d] += count
            size += count
        if size == 0:
            continue
        distinct = 0
        for y in range(bins):
            distinct += in_y[y] > 0
            y_seen[y] += in_y[y]
        found[0] += 1
        found[1] += size == 1
        if distinct > 1:
            found[2] += size
            for d in range(width):
                if in_x[d] == 0:
                    continue
                row = table[(z * width + d) * bins : (z * width + d + 1) * bins]
                for y in range(bins):
                    observed = float(row[y]) * float(size)
                    expected = float(in_x[d]) * float(in_y[y])
                    both = observed + expected
                    difference = observed - expected
                    term = difference * difference / ((both if both > 0.0 else 1.0) * size)
                    if cellwise != 0:
                        square = x_squares[z + d] + y_squares[y] + z_squares[z]
                        term *= scale_cell(square, cellwise, decay)
                    sums[y] += term if row[y] >= least else 0.0
    table[: depth * width * bins] = 0
    found[3] += np.count_nonzero(x_seen)
    found[4] += np.count_nonzero(y_seen)
    total = 0.0
    for y in range(bins):
        total += sums[y]
    return total


@compiled
def sum_sorted(
    codes: Any, values: Any, cellwise: int, decay: float, edges: bool, found: Any
) -> float:
    """The same by sorting, for codes (3, N) of X, Y, Z whose table would be too large."""
    x, bins_x = number_codes(codes[0:1])
    y, bins_y = number_codes(codes[1:2])
    z, cells_z = number_codes(codes[2:3])
    cells = sort_cells(z, cells_z, y, bins_y)
    found[0] += cells_z
    found[1] += cells[5]
    found[2] += len(cells[0])
    found[3] += bins_x
    found[4] += bins_y
    nothing = np.zeros(1, np.float64)
    squares = (nothing, nothing, nothing)
    if cellwise != 0:
        squares = (
            bin_squares(x, bins_x, values[0:1]),
            bin_squares(y, bins_y, values[1:2]),
            bin_squares(z, cells_z, values[2:3]),
        )
    return sum_pair(x, bins_x, cells, squares, cellwise, decay, edges)


@compiled
def sum_codes(
    codes: Any, values: Any, table: Any, cellwise: int, decay: float, edges: bool, found: Any
) -> float:
    """Σ φ · (r − α)² / (r + α) of one pair from the codes (3, N) of X, Y, Z; picks the way."""
    y_low, bins = span_of(codes[1])
    z_low, depth = span_of(codes[2])
    shifted = np.empty(codes.shape[1], np.int32)
    for sample in range(len(shifted)):
        shifted[sample] = codes[0, sample] - codes[2, sample]
    d_low, width = span_of(shifted)
    if float(depth) * float(width) * float(bins) > len(table):
        return sum_sorted(codes, values, cellwise, decay, edges, found)
    row, plane = np.int32(bins), np.int32(width * bins)
    first_y, first_z, first_d = np.int32(y_low), np.int32(z_low), np.int32(d_low)
    for sample in range(len(shifted)):
        shifted[sample] = (
            (codes[2, sample] - first_z) * plane
            + (shifted[sample] - first_d) * row
            + (codes[1, sample] - first_y)
        )
    for sample in range(len(shifted)):
        table[shifted[sample]] += 1
    nothing = np.zeros(1, np.float64)
    squares = (nothing, nothing, nothing)
    if cellwise != 0:
        squares = (
            square_bins(codes[0], z_low + d_low, depth + width, values[0]),
            square_bins(codes[1], y_low, bins, values[1]),
            square_bins(codes[2], z_low, depth, values[2]),
        )
    return sum_table(table, (depth, width, bins), squares, cellwise, decay, edges, found)


@compiled
def score_channel(
    window: Any,
    weight: Any,
    outputs: Any,
    inverses: Any,
    shifts: Any,
    conditional: bool,
    edges: bool,
    cellwise: int,
    decay: Any,
    found: Any,
) -> Any:
    """Scores of all filters that read one channel, averaged over shifts.

    Parameters
    ----------
    window : (kernel, N) float32, the channel's input windows
    weight : (filters, kernel) float32
    outputs : (filters, N) float32
    inverses : (2,) float32, one over the bin widths of X and Z, and of Y
    shifts : (shifts, 3) float32, b/ε of X, Y, Z
    decay : (filters,) float64, of the cellwise scaling
    found : (5,) float64, sums over pairs and shifts: cells of Z, singletons, informative samples,
        bins of X, bins of Y
    """
    filters, samples = outputs.shape
    scores = np.zeros(filters, np.float64)
    values = np.zeros((3, samples), np.float32)
    codes = np.zeros((3, samples), np.int32)
    table = np.zeros(TABLE_LIMIT, np.int32)
    for index in range(filters):
        contribute(window, weight[index], values[1])
        for sample in range(samples):
            values[0, sample] = outputs[index, sample]
            if conditional:
                values[2, sample] = outputs[index, sample] - values[1, sample]
        total = 0.0
        for shift in range(len(shifts)):
            code_bins(values[0], inverses[0], shifts[shift, 0], codes[0])
            code_bins(values[1], inverses[1], shifts[shift, 1], codes[1])
            if conditional:
                code_bins(values[2], inverses[0], shifts[shift, 2], codes[2])
            total += sum_codes(codes, values, table, cellwise, decay[index], edges, found)
        scores[index] = total / (2.0 * samples * len(shifts))
    return scores

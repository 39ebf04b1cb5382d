"""Compiled child view: all filters that read one input channel.

For a filter i and its input channel j, Y = Σ_k w[k] · window[k] is the kernel's contribution, X the
output, Z = X − Y. Since X = Y + Z, the bins of X and Z differ by little: with d = bin(X) − bin(Z)
the three-way table over (z, d, y) is small and dense enough to be counted in the first-level cache,
and for a given z the numbers d name the bins of X. Only its span is cleared and read.

Memory per thread: kernel · N + 5 N numbers of 4 bytes and one table of at most TABLE_LIMIT counts.
Pairs whose table would be larger (very small widths, outliers) are left to the caller, who sorts
them into cells: that is rare, and kernels that are not needed need not be compiled.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from snacs.scores.kernels import compiled, scale_cell

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
def square_pair(codes: Any, lows: Any, shape: Any, values: Any) -> Any:
    """Squared bin means of X, Y and Z for :func:`sum_table`."""
    y_low, z_low, d_low = lows
    depth, width, bins = shape
    x = square_bins(codes[0], z_low + d_low, depth + width, values[0])
    y = square_bins(codes[1], y_low, bins, values[1])
    z = square_bins(codes[2], z_low, depth, values[2])
    return x, y, z


@compiled
def count_cell(table: Any, first: int, width: int, bins: int, in_x: Any, in_y: Any) -> Any:
    """Fill in the margins of the (d, y) counts that start at ``first``; returns their sum."""
    for y in range(bins):
        in_y[y] = 0
    size = 0
    for d in range(width):
        count = 0
        for y in range(bins):
            seen = table[first + d * bins + y]
            count += seen
            in_y[y] += seen
        in_x[d] = count
        size += count
    return size


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
    in_y, y_seen = np.zeros(bins, np.int64), np.zeros(bins, np.int64)
    in_x, x_seen = np.zeros(width, np.int64), np.zeros(depth + width, np.int64)
    for z in range(depth):
        first = z * width * bins
        size = count_cell(table, first, width, bins, in_x, in_y)
        if size == 0:
            continue
        distinct = 0
        for y in range(bins):
            distinct += in_y[y] > 0
            y_seen[y] += in_y[y]
        found[0] += 1
        found[1] += size == 1
        found[2] += size if distinct > 1 else 0
        for d in range(width):
            x_seen[z + d] += in_x[d]
            if in_x[d] == 0 or distinct == 1:
                continue
            for y in range(bins):
                seen = table[first + d * bins + y]
                observed = float(seen) * float(size)
                expected = float(in_x[d]) * float(in_y[y])
                both = observed + expected
                difference = observed - expected
                term = difference * difference / ((both if both > 0.0 else 1.0) * size)
                if cellwise != 0:
                    square = x_squares[z + d] + y_squares[y] + z_squares[z]
                    term *= scale_cell(square, cellwise, decay)
                sums[y] += term if seen >= least else 0.0
    total = 0.0
    for y in range(bins):
        total += sums[y]
        found[4] += y_seen[y] > 0
    for x in range(depth + width):
        found[3] += x_seen[x] > 0
    for cell in range(depth * width * bins):
        table[cell] = 0
    return total


@compiled
def fill_table(codes: Any, table: Any, place: Any) -> Any:
    """Count the codes (3, N) of X, Y, Z into a (z, d, y) table, which must be clear.

    Returns the smallest y, z and d and the numbers of each; where the table is too small for them
    nothing is counted and the first number is 0. ``place`` (N,) is workspace.
    """
    y_low, bins = span_of(codes[1])
    z_low, depth = span_of(codes[2])
    for sample in range(len(place)):
        place[sample] = codes[0, sample] - codes[2, sample]
    d_low, width = span_of(place)
    if float(depth) * float(width) * float(bins) > len(table):
        return (y_low, z_low, d_low), (depth * 0, width, bins)
    row, plane = np.int32(bins), np.int32(width * bins)
    first_y, first_z, first_d = np.int32(y_low), np.int32(z_low), np.int32(d_low)
    for sample in range(len(place)):
        place[sample] = (
            (codes[2, sample] - first_z) * plane
            + (place[sample] - first_d) * row
            + (codes[1, sample] - first_y)
        )
    for sample in range(len(place)):
        table[place[sample]] += 1
    return (y_low, z_low, d_low), (depth, width, bins)


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
    """Σ φ (r − α)² / (r + α) of all filters that read one channel, summed over shifts.

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

    Returns
    -------
    sums : (filters,) float64
    left_out : (filters, shifts) bool, pairs whose table would be too large: not summed
    """
    filters, samples = outputs.shape
    sums = np.zeros(filters, np.float64)
    left_out = np.zeros((filters, len(shifts)), np.bool_)
    values = np.zeros((3, samples), np.float32)
    codes = np.zeros((3, samples), np.int32)
    place = np.empty(samples, np.int32)
    table = np.zeros(TABLE_LIMIT, np.int32)
    nothing = np.zeros(1, np.float64)
    for index in range(filters):
        contribute(window, weight[index], values[1])
        for sample in range(samples):
            values[0, sample] = outputs[index, sample]
            rest = outputs[index, sample] - values[1, sample]
            values[2, sample] = rest if conditional else np.float32(0)
        for shift in range(len(shifts)):
            for variable in range(3):
                inverse = inverses[1 if variable == 1 else 0]
                code_bins(values[variable], inverse, shifts[shift, variable], codes[variable])
            lows, shape = fill_table(codes, table, place)
            if shape[0] == 0:
                left_out[index, shift] = True
                continue
            squares = (nothing, nothing, nothing)
            if cellwise != 0:
                squares = square_pair(codes, lows, shape, values)
            sums[index] += sum_table(table, shape, squares, cellwise, decay[index], edges, found)
    return sums, left_out

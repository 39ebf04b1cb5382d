"""Compiled evaluation of one cell of the conditioning set, for a block of children at once.

Children lie innermost, one byte per bin, so that every step is a vector operation over children.
Counting compares bytes and is cheap; evaluating divides and is not. So each segment of a cell is
evaluated in the way that needs fewer evaluations:

* *by plane* (long segments): for each bin v, the r samples of the segment whose byte is v; the
  first bin, every child's most frequent one, is what is left. One evaluation per bin;
* *by sample* (short segments): r and a are the samples with the sample's own byte in the segment
  and in the cell; Σ_bins rα/(r + α) = Σ_samples α/(r + α). One evaluation per sample.

Either way Σ (r − α)²/(r + α) = 2 · size − 4 Σ rα/(r + α) over a cell: what is summed is the overlap
rα/(r + α). Counts are exact, overlaps in single precision, flushed to double every HELD samples.
Two fractions are brought to one denominator: one division for two.

Arrays are indexed by row and passed one by one, without views and tuples: counting references to
those would cost as much as the evaluation of a short segment.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from snacs.scores.kernels import inlined
from snacs.scores.kernels_bytes import count_code, count_equal, fill, select_whole

TINY = np.float32(1e-12)
"""What an absent bin is expected to hold: its overlap is 0, and so must not be its denominator."""
SMALL = 255
"""Cells of at most so many samples are counted in bytes throughout."""
FEW = 2
"""Cells of at most so many samples per bin compare all their samples with each other."""
LONG = 2
"""Segments of at least bins / LONG samples are evaluated by plane: a plane needs fewer steps."""


@inlined
def add_planes(
    seen: Any, wholes: Any, bin_: int, shares: Any, rows: int, whole: Any, sums: Any
) -> None:
    """Add the overlaps Σ rα / (r + α), α = whole · share, of ``rows`` rows of one bin.

    An idle row (r = 0, share 0) must lie behind them; it adds 0.
    """
    width = sums.shape[1]
    for child in range(width):
        count = np.float32(wholes[bin_, child])
        whole[0, child] = count if count > TINY else TINY
    for row in range(0, rows, 2):
        one, two = shares[row], shares[row + 1]
        two = two if two > TINY else np.float32(1)
        for child in range(width):
            r1, r2 = np.float32(seen[row, child]), np.float32(seen[row + 1, child])
            a1, a2 = whole[0, child] * one, whole[0, child] * two
            b1, b2 = r1 + a1, r2 + a2
            sums[0, child] += (r1 * a1 * b2 + r2 * a2 * b1) / (b1 * b2)


@inlined
def drop_empty(seen: Any, wholes: Any, bin_: int, shares: Any, rows: int, sums: Any) -> None:
    """Add what is expected where no sample is to row 1 of ``sums``: edges support leaves it out."""
    for row in range(rows):
        share = shares[row]
        for child in range(sums.shape[1]):
            expected = np.float32(wholes[bin_, child]) * share
            sums[1, child] += expected if seen[row, child] == 0 else np.float32(0)


@inlined
def add_two_samples(own: Any, one: Any, two: Any, edges: bool, sums: Any) -> None:
    """Add α / (r + α) of two samples to ``sums``; for edges, take α / r off its row 1.

    ``own`` holds r and a of the first, then of the second; α is a times the share.
    """
    for child in range(sums.shape[1]):
        r1, r2 = np.float32(own[0, child]), np.float32(own[2, child])
        a1, a2 = np.float32(own[1, child]) * one, np.float32(own[3, child]) * two
        b1, b2 = r1 + a1, r2 + a2
        sums[0, child] += (a1 * b2 + a2 * b1) / (b1 * b2)
    if edges:
        for child in range(sums.shape[1]):
            r1, r2 = np.float32(own[0, child]), np.float32(own[2, child])
            a1, a2 = np.float32(own[1, child]) * one, np.float32(own[3, child]) * two
            sums[1, child] -= a1 / r1 + a2 / r2


@inlined
def add_samples(
    codes: Any,
    order: Any,
    ends: Any,
    start: int,
    longest: int,
    bins: int,
    edges: bool,
    wholes: Any,
    own: Any,
    sums: Any,
) -> int:
    """Segments of at most ``longest`` samples, by sample; returns how many samples those are.

    How often a byte is in the cell is looked up in ``wholes``; for ``bins`` 0, compared.
    """
    stop = ends[-1]
    place = 0
    samples = 0
    shares = (np.float32(0), np.float32(0))
    first = start
    for segment in range(len(ends)):
        last = ends[segment]
        length = last - first
        for position in range(first, last if length <= longest else first):
            sample = order[position]
            r, a = 2 * place, 2 * place + 1
            shares = (shares[1], np.float32(length) / np.float32(stop - start))
            fill(own, r, np.uint8(length == 1))
            if length > 1:
                count_equal(codes, order, first, last, sample, own, r)
            if bins > 0:
                select_whole(codes, sample, wholes, bins, own, a)
            else:
                fill(own, a, np.uint8(0))
                count_equal(codes, order, start, stop, sample, own, a)
            if place == 1:
                add_two_samples(own, shares[0], shares[1], edges, sums)
            place = 1 - place
            samples += 1
        first = last
    if place == 1:
        fill(own, 2, np.uint8(1))  # idle: α = 0
        fill(own, 3, np.uint8(0))
        add_two_samples(own, shares[1], np.float32(0), edges, sums)
    return samples


@inlined
def count_planes(
    codes: Any,
    order: Any,
    ends: Any,
    start: int,
    bins: int,
    code: Any,
    seen: Any,
    left: Any,
    wholes: Any,
) -> None:
    """Count the samples whose byte is ``code``: by long segment (``seen``) and in the cell.

    They are taken off ``left`` and off the whole of bin 0, which is what is left in the end.
    """
    width = codes.shape[1]
    fill(wholes, code, np.uint8(0))
    row = 0
    first = start
    done = start
    for segment in range(len(ends)):
        last = ends[segment]
        if LONG * (last - first) >= bins:
            count_code(codes, order, done, first, code, wholes, code)  # the short ones before it
            fill(seen, row, np.uint8(0))
            count_code(codes, order, first, last, code, seen, row)
            for child in range(width):
                left[row, child] -= seen[row, child]
                wholes[code, child] += seen[row, child]
            row += 1
            done = last
        first = last
    count_code(codes, order, done, first, code, wholes, code)
    for child in range(width):
        wholes[0, child] -= wholes[code, child]


@inlined
def add_small(
    codes: Any,
    order: Any,
    ends: Any,
    start: int,
    bins: int,
    edges: bool,
    seen: Any,
    left: Any,
    wholes: Any,
    own: Any,
    shares: Any,
    whole: Any,
    sums: Any,
) -> int:
    """Add one cell of at most SMALL samples, whose bytes are below ``bins``, to ``sums``.

    Returns how many samples were evaluated by sample, which edges support needs to know.
    """
    size = ends[-1] - start
    if size <= FEW * bins:
        return add_samples(codes, order, ends, start, size, 0, edges, wholes, own, sums)
    rows = 0
    first = start
    for segment in range(len(ends)):
        length = ends[segment] - first
        first = ends[segment]
        if LONG * length >= bins:
            shares[rows] = np.float32(length) / np.float32(size)
            fill(left, rows, np.uint8(length))
            rows += 1
    shares[rows] = 0
    fill(left, rows, np.uint8(0))
    fill(seen, rows, np.uint8(0))
    fill(wholes, 0, np.uint8(size))
    for code in range(bins - 1, 0, -1):
        count_planes(codes, order, ends, start, bins, np.uint8(code), seen, left, wholes)
        add_planes(seen, wholes, code, shares, rows, whole, sums)
        if edges:
            drop_empty(seen, wholes, code, shares, rows, sums)
    add_planes(left, wholes, 0, shares, rows, whole, sums)
    if edges:
        drop_empty(left, wholes, 0, shares, rows, sums)
    return add_samples(
        codes, order, ends, start, (bins - 1) // LONG, bins, edges, wholes, own, sums
    )


@inlined
def add_large(
    codes: Any,
    order: Any,
    ends: Any,
    start: int,
    bins: int,
    edges: bool,
    seen: Any,
    left: Any,
    own: Any,
    shares: Any,
    whole: Any,
    sums: Any,
) -> None:
    """Add one cell of any size, plane by plane: counts beyond a byte are kept as float32."""
    width = codes.shape[1]
    rows = len(ends)
    first = start
    for row in range(rows):
        shares[row] = np.float32(ends[row] - first) / np.float32(ends[-1] - start)
        fill(left, row, np.float32(ends[row] - first))
        first = ends[row]
    shares[rows] = 0
    fill(seen, rows, np.float32(0))
    for code in range(bins - 1, -1, -1):
        fill(whole, 1, np.float32(0))
        first = start
        for row in range(rows):
            for child in range(width):
                seen[row, child] = left[row, child] if code == 0 else np.float32(0)
            while code > 0 and first < ends[row]:
                last = min(first + SMALL, ends[row])
                fill(own, 0, np.uint8(0))
                count_code(codes, order, first, last, np.uint8(code), own, 0)
                for child in range(width):
                    seen[row, child] += np.float32(own[0, child])
                first = last
            for child in range(width):
                left[row, child] -= seen[row, child]
                whole[1, child] += seen[row, child]
        add_planes(seen, whole, 1, shares, rows, whole, sums)
        if edges:
            drop_empty(seen, whole, 1, shares, rows, sums)


@inlined
def flush(sums: Any, samples: int, by_sample: int, edges: bool, total: Any, block: int) -> None:
    """Add Σ (r − α)² / (r + α) of the cells held in ``sums`` to ``total`` and clear them."""
    for child in range(sums.shape[1]):
        value = 2.0 * samples - 4.0 * np.float64(sums[0, child])
        if edges:
            value -= by_sample + np.float64(sums[1, child])
        total[block, child] += value
    fill(sums, 0, np.float32(0))
    fill(sums, 1, np.float32(0))

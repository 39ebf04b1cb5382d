"""Compiled evaluation of one cell of the conditioning set, for a block of children at once.

Children lie innermost, one byte per bin, so that every step is a vector operation over children. A
cell is evaluated in one of two ways, whichever needs less work (``kernels_layer`` chooses):

* *by plane*: for each bin v but the first, the samples of a segment whose byte is v are counted;
  the first bin, every child's most frequent one, is what is left. One evaluation per segment and v;
* *by sample* (small cells of children with many bins): r and a are the samples with an equal byte
  in the segment and in the cell, and Σ_cells rα/(r + α) = Σ_samples α/(r + α).

Counts are exact, evaluations in single precision, flushed to double once per cell. Divisions cost
most, so the fractions of four evaluations are brought to one denominator: one division for four.

``space`` is workspace: (rows, width) float32 for ``seen`` and ``left`` with at least as many rows
as the cell has segments, rounded up to four; (8, width) bytes; (rows,) and twice (width,) float32.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from snacs.scores.kernels import compiled

TINY = np.float32(1e-6)
"""Denominator of a cell without expected mass, whose numerator is 0; below every other one."""


@compiled
def count_equal(codes: Any, order: Any, first: int, last: int, own: Any, counts: Any) -> None:
    """Add to ``counts`` how many of the samples first … last equal ``own``, child by child."""
    width = len(own)
    position = first
    while position + 3 < last:
        one, two = order[position], order[position + 1]
        three, four = order[position + 2], order[position + 3]
        for child in range(width):
            counts[child] += (
                np.uint8(codes[one, child] == own[child])
                + np.uint8(codes[two, child] == own[child])
                + np.uint8(codes[three, child] == own[child])
                + np.uint8(codes[four, child] == own[child])
            )
        position += 4
    while position < last:
        one = order[position]
        for child in range(width):
            counts[child] += np.uint8(codes[one, child] == own[child])
        position += 1


@compiled
def add_fours(seen: Any, whole: Any, shares: Any, rows: int, sums: Any) -> None:
    """Add Σ (r − α)² / (r + α), α = whole · share, over ``rows`` rows, a multiple of four.

    Idle rows (r = 0, share 0) add 0.
    """
    for row in range(0, rows, 4):
        one, two, three, four = shares[row], shares[row + 1], shares[row + 2], shares[row + 3]
        for child in range(len(sums)):
            r1, r2, r3, r4 = (
                seen[row, child],
                seen[row + 1, child],
                seen[row + 2, child],
                seen[row + 3, child],
            )
            all_of = whole[child]
            a1, a2, a3, a4 = all_of * one, all_of * two, all_of * three, all_of * four
            b1, b2 = max(r1 + a1, TINY), max(r2 + a2, TINY)
            b3, b4 = max(r3 + a3, TINY), max(r4 + a4, TINY)
            d1, d2, d3, d4 = r1 - a1, r2 - a2, r3 - a3, r4 - a4
            b12, b34 = b1 * b2, b3 * b4
            top = (d1 * d1 * b2 + d2 * d2 * b1) * b34 + (d3 * d3 * b4 + d4 * d4 * b3) * b12
            sums[child] += top / (b12 * b34)


@compiled
def drop_empty(seen: Any, whole: Any, shares: Any, rows: int, sums: Any) -> None:
    """Take the cells without a sample out again: each has added its α. For edges support."""
    for row in range(rows):
        share = shares[row]
        for child in range(len(sums)):
            sums[child] -= whole[child] * share if seen[row, child] == 0 else np.float32(0)


@compiled
def count_plane(codes: Any, order: Any, ends: Any, start: int, code: Any, space: Any) -> None:
    """Count the samples whose byte is ``code``, by segment (``seen``) and in all (``whole``).

    They are taken off ``left``, the samples not counted yet; code 0 is all that is left.
    """
    seen, left, counts, _, whole, _ = space
    width = codes.shape[1]
    for child in range(width):
        whole[child] = 0
        counts[1, child] = code
    first = start
    for row in range(len(ends)):
        if code == 0:
            for child in range(width):
                seen[row, child] = left[row, child]
                whole[child] += left[row, child]
            continue
        again = np.float32(0)
        while first < ends[row]:
            last = min(first + 255, ends[row])  # as many as a byte can count
            for child in range(width):
                counts[0, child] = 0
            count_equal(codes, order, first, last, counts[1], counts[0])
            for child in range(width):
                count = np.float32(counts[0, child])
                seen[row, child] = seen[row, child] * again + count
                left[row, child] -= count
                whole[child] += count
            again = np.float32(1)
            first = last


@compiled
def add_planes(
    codes: Any, order: Any, ends: Any, start: int, bins: int, edges: bool, space: Any, total: Any
) -> None:
    """Add one cell, whose bytes are below ``bins``, to ``total``, plane by plane."""
    seen, left, _, shares, whole, sums = space
    width = codes.shape[1]
    rows = (len(ends) + 3) // 4 * 4
    first = start
    for row in range(rows):
        length = ends[row] - first if row < len(ends) else 0
        first += length
        shares[row] = np.float32(length) / np.float32(ends[-1] - start)
        for child in range(width):
            seen[row, child] = 0
            left[row, child] = length
    for child in range(width):
        sums[child] = 0
    for code in range(bins - 1, -1, -1):
        count_plane(codes, order, ends, start, np.uint8(code), space)
        add_fours(seen, whole, shares, rows, sums)
        if edges:
            drop_empty(seen, whole, shares, len(ends), sums)
    for child in range(width):
        total[child] += np.float64(sums[child])


@compiled
def add_samples(
    codes: Any, order: Any, ends: Any, start: int, edges: bool, space: Any, total: Any
) -> None:
    """Add one cell of at most 255 samples to ``total``, sample by sample.

    Full support is 2 · size − 4 Σ_samples α / (r + α); the cells without a sample hold
    size − Σ_samples α / r of it, which edges support leaves out.
    """
    _, _, counts, shares, whole, sums = space
    width = codes.shape[1]
    size = ends[-1] - start
    for child in range(width):
        sums[child] = 0
        whole[child] = 0
    segment = 0
    for position in range(start, ends[-1]):
        place = (position - start) % 4
        if position == ends[segment]:
            segment += 1
        first = ends[segment - 1] if segment > 0 else start
        shares[place] = np.float32(ends[segment] - first) / np.float32(size)
        for child in range(width):
            counts[place, child] = 0
        for part in range(3):  # its segment, then what lies before and behind it in the cell
            begin = first if part == 0 else start if part == 1 else ends[segment]
            last = ends[segment] if part == 0 else first if part == 1 else ends[-1]
            counted = counts[place if part == 0 else place + 4]
            count_equal(codes, order, begin, last, codes[order[position]], counted)
            if part == 0:
                for child in range(width):
                    counts[place + 4, child] = counted[child]
        if place == 3 or position == ends[-1] - 1:
            add_four_samples(counts, shares, place + 1, edges, whole, sums)
    for child in range(width):
        total[child] += 2.0 * size - 4.0 * np.float64(sums[child])
        if edges:
            total[child] -= size - np.float64(whole[child])


@compiled
def add_four_samples(
    counts: Any, shares: Any, rows: int, edges: bool, observed: Any, sums: Any
) -> None:
    """Add Σ α / (r + α) of up to four samples to ``sums``, and Σ α / r to ``observed`` for edges.

    ``counts`` holds their r, then their number in the cell; α is that times the share.
    """
    for row in range(rows, 4):  # idle: α = 0, and the same bits whatever was there
        shares[row] = 0
        for child in range(len(sums)):
            counts[row, child] = 1
            counts[row + 4, child] = 1
    one, two, three, four = shares[0], shares[1], shares[2], shares[3]
    for child in range(len(sums)):
        a1, a2 = np.float32(counts[4, child]) * one, np.float32(counts[5, child]) * two
        a3, a4 = np.float32(counts[6, child]) * three, np.float32(counts[7, child]) * four
        b1, b2 = np.float32(counts[0, child]) + a1, np.float32(counts[1, child]) + a2
        b3, b4 = np.float32(counts[2, child]) + a3, np.float32(counts[3, child]) + a4
        b12, b34 = b1 * b2, b3 * b4
        sums[child] += ((a1 * b2 + a2 * b1) * b34 + (a3 * b4 + a4 * b3) * b12) / (b12 * b34)
    if edges:
        for row in range(rows):
            for child in range(len(sums)):
                expected = np.float32(counts[row + 4, child]) * shares[row]
                observed[child] += expected / np.float32(counts[row, child])

"""The compiled interpreter: each operation of a program, for one block of images.

Every function does a range of an operation's independent items, so that threads can share an
operation in any way without changing a bit of the result.
"""

from __future__ import annotations

from typing import Any

from snacs.runtime import fields as f
from snacs.runtime.compiling import compiled
from snacs.runtime.exchange import pack, unpack
from snacs.runtime.planes import copy, mean, pool
from snacs.runtime.sharing import make_shared
from snacs.runtime.vectors import LANES, WIDE, fill, finish, make_row, make_taps

_shared4 = make_taps(4, 9, shared=True)
_nine1, _nine2 = make_taps(1, 9), make_taps(2, 9)
_seven1, _seven2 = make_taps(1, 7), make_taps(2, 7)
_five1, _five2 = make_taps(1, 5), make_taps(2, 5)
_three1, _three2 = make_taps(1, 3), make_taps(2, 3)
_row1, _row2, _row4, _row8 = make_row(1), make_row(2), make_row(4), make_row(8)

_below41, _below42 = make_shared(4, 1), make_shared(4, 2)
_below21, _below22 = make_shared(2, 1), make_shared(2, 2)
_below1 = make_shared(1, 0)

VECTORS_BELOW = {1: 4, 2: 4} if WIDE else {1: 2}
"""Vectors at once where rows wrap, by rows per vector; else one."""

TAPS = (3, 5, 7, 9)
"""Numbers of taps that there are kernels for."""


@compiled
def _conv(
    op: Any, first: int, last: int, ints: Any, rows: Any, weights: Any, arena: Any, sums: Any
) -> None:
    tiles, vectors, variant = op[f.TILES], op[f.VECTORS], op[f.VARIANT]
    kept, factors = rows[op[f.ROWS_AT] :], weights[op[f.WEIGHTS_AT] :]
    for item in range(first, last):
        block, tile = item // tiles, item % tiles
        at = op[f.BLOCKS_AT] + 4 * block
        begin, count = ints[at], ints[at + 1]
        _start(op, begin, count, vectors, weights, sums)
        bases = op[f.X_BASES] + tile * vectors
        for group in range(ints[at + 2], ints[at + 2] + ints[at + 3]):
            where = op[f.GROUPS_AT] + 4 * group
            x, taps = op[f.X] + ints[where], ints[where + 1]
            k, end = ints[where + 2], ints[where + 3]
            if variant > 1000:
                edges = op[f.EDGES_AT] + 2 * tile
                if variant == 1041:
                    _below41(arena, x, ints, bases, taps, edges, sums, kept, factors, k, end)
                elif variant == 1042:
                    _below42(arena, x, ints, bases, taps, edges, sums, kept, factors, k, end)
                elif variant == 1022:
                    _below22(arena, x, ints, bases, taps, edges, sums, kept, factors, k, end)
                elif variant == 1021:
                    _below21(arena, x, ints, bases, taps, edges, sums, kept, factors, k, end)
                else:
                    _below1(arena, x, ints, bases, taps, edges, sums, kept, factors, k, end)
            elif variant == 94:
                _shared4(arena, x, ints, bases, taps, sums, kept, factors, k, end)
            elif variant == 92:
                _nine2(arena, x, ints, bases, taps, sums, kept, factors, k, end)
            elif variant == 91:
                _nine1(arena, x, ints, bases, taps, sums, kept, factors, k, end)
            elif variant == 72:
                _seven2(arena, x, ints, bases, taps, sums, kept, factors, k, end)
            elif variant == 71:
                _seven1(arena, x, ints, bases, taps, sums, kept, factors, k, end)
            elif variant == 52:
                _five2(arena, x, ints, bases, taps, sums, kept, factors, k, end)
            elif variant == 51:
                _five1(arena, x, ints, bases, taps, sums, kept, factors, k, end)
            elif variant == 32:
                _three2(arena, x, ints, bases, taps, sums, kept, factors, k, end)
            else:
                _three1(arena, x, ints, bases, taps, sums, kept, factors, k, end)
        for i in range(count):
            _finish(op, begin + i, tile, vectors, i * vectors * LANES, ints, weights, arena, sums)


@compiled
def _start(op: Any, begin: int, count: int, vectors: int, weights: Any, sums: Any) -> None:
    bias = op[f.BIAS_AT] + begin
    for i in range(count):
        for v in range(vectors):
            fill(sums, (i * vectors + v) * LANES, weights[bias + i])


@compiled
def _finish(
    op: Any,
    row: int,
    tile: int,
    vectors: int,
    at: int,
    ints: Any,
    weights: Any,
    arena: Any,
    sums: Any,
) -> None:
    """One filter of a tile: add what is added, clip, write."""
    low, high = weights[op[f.LIMITS_AT]], weights[op[f.LIMITS_AT] + 1]
    out = op[f.OUT] + row * op[f.OUT_PLANE]
    other = op[f.OTHER] + row * op[f.OTHER_PLANE]
    for v in range(vectors):
        place = ints[op[f.OUT_BASES] + tile * vectors + v]
        added = other + place if op[f.OTHER] >= 0 else -1
        mask = ints[op[f.MASKS] + tile * vectors + v]
        finish(arena, sums, at + v * LANES, out + place, added, low, high, mask)


@compiled
def _rows(
    op: Any, first: int, last: int, ints: Any, rows: Any, weights: Any, arena: Any, sums: Any
) -> None:
    tiles, vectors = op[f.TILES], op[f.VECTORS]
    columns, factors = rows[op[f.ROWS_AT] :], weights[op[f.WEIGHTS_AT] :]
    x, plane = op[f.X], op[f.X_PLANE]
    for item in range(first, last):
        block, tile = item // tiles, item % tiles
        at = op[f.BLOCKS_AT] + 4 * block
        bases = op[f.X_BASES] + tile * vectors
        for row in range(ints[at], ints[at] + ints[at + 1]):
            k, end = ints[op[f.GROUPS_AT] + row], ints[op[f.GROUPS_AT] + row + 1]
            for v in range(vectors):
                fill(sums, v * LANES, weights[op[f.BIAS_AT] + row])
            if vectors == 8:
                _row8(arena, x, plane, ints, bases, sums, columns, factors, k, end)
            elif vectors == 4:
                _row4(arena, x, plane, ints, bases, sums, columns, factors, k, end)
            elif vectors == 2:
                _row2(arena, x, plane, ints, bases, sums, columns, factors, k, end)
            else:
                _row1(arena, x, plane, ints, bases, sums, columns, factors, k, end)
            _finish(op, row, tile, vectors, 0, ints, weights, arena, sums)


@compiled
def _dense(op: Any, first: int, last: int, weights: Any, arena: Any, sums: Any) -> None:
    """A matrix times the vector of one image, 64 outputs at a time."""
    low, high = weights[op[f.LIMITS_AT]], weights[op[f.LIMITS_AT] + 1]
    outputs = op[f.CHANNELS]
    padded, out = (outputs + 63) // 64 * 64, op[f.OUT] + op[f.OUT_ORIGIN]
    for item in range(first, last):
        total = sums[:64]
        total[:] = 0
        for j in range(op[f.SOURCES]):
            value = arena[op[f.X] + op[f.X_ORIGIN] + j * op[f.X_PLANE]]
            at = op[f.WEIGHTS_AT] + j * padded + item * 64
            column = weights[at : at + 64]
            for i in range(64):
                total[i] += value * column[i]
        for i in range(item * 64, min(outputs, item * 64 + 64)):
            value = total[i - item * 64] + weights[op[f.BIAS_AT] + i]
            if op[f.OTHER] >= 0:
                value += arena[op[f.OTHER] + op[f.OUT_ORIGIN] + i * op[f.OTHER_PLANE]]
            value = low if value < low else value
            arena[out + i * op[f.OUT_PLANE]] = high if value > high else value


@compiled
def work(
    op: Any,
    first: int,
    last: int,
    block: int,
    images: int,
    ints: Any,
    rows: Any,
    weights: Any,
    arena: Any,
    sums: Any,
) -> None:
    """Items ``first`` to ``last`` of one operation, on one block of the batch's images."""
    kind = op[f.KIND]
    if kind == f.CONV:
        _conv(op, first, last, ints, rows, weights, arena, sums)
    elif kind == f.ROWS:
        _rows(op, first, last, ints, rows, weights, arena, sums)
    elif kind == f.DENSE:
        _dense(op, first, last, weights, arena, sums)
    elif kind == f.COPY:
        copy(op, first, last, weights, arena)
    elif kind == f.POOL:
        pool(op, first, last, weights, arena)
    elif kind == f.MEAN:
        mean(op, first, last, arena, sums)
    elif kind == f.PACK:
        pack(op, first, last, block, images, arena, sums)
    else:
        unpack(op, first, last, block, images, arena, sums)

"""Evaluating and adding overlaps, 64 children in four vectors of floats."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types

from snacs.scores.vectors import (
    BYTES,
    CHILDREN,
    FLOATS,
    add_equal,
    call,
    data,
    fma,
    inline,
    load,
    loop,
    nothing,
    number,
    reciprocal,
    splat,
    store,
    widen,
)

TINY = 1e-12
"""What an absent bin is expected to hold, as in ``kernels_cells``."""


@inline
def add_wide(
    typing: Any,  # noqa: ARG001
    counts: Any,
    bins: Any,
    totals: Any,
    at: Any,
    stride: Any,
) -> Any:
    """Add the bytes counts[0 … bins] (64 each) to the floats totals[at], totals[at + stride], …."""
    signature = types.void(counts, bins, totals, at, stride)

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        source, target = (data(context, builder, signature.args[at], values[at]) for at in (0, 2))

        def add(index: Any, held: list[Any]) -> list[Any]:
            row = load(builder, source, builder.mul(index, number(CHILDREN)), BYTES)
            first = builder.add(values[3], builder.mul(index, values[4]))
            for part, more in enumerate(widen(builder, row)):
                place = builder.add(first, number(16 * part))
                total = load(builder, target, place, FLOATS)
                store(builder, builder.fadd(total, more), target, place)
            return held

        loop(builder, number(0), values[1], 1, [], add)
        return context.get_dummy_value()

    return signature, generate


def _add_two(builder: Any, r1: Any, a1: Any, r2: Any, a2: Any, old: Any) -> Any:
    """Return old + r1 a1 / (r1 + a1) + r2 a2 / (r2 + a2)."""
    b1, b2 = builder.fadd(r1, a1), builder.fadd(r2, a2)
    left = builder.fmul(builder.fmul(r1, a1), b2)
    top = fma(builder, builder.fmul(r2, a2), b1, left)
    return fma(builder, top, reciprocal(builder, builder.fmul(b1, b2)), old)


def make_add(wide: bool) -> Any:
    """Make ``add_bin`` for counts in bytes or, for cells that need it, in floats."""

    @inline
    def add_bin(
        typing: Any,  # noqa: ARG001
        counts: Any,
        at: Any,
        segments: Any,
        shares: Any,
        sums: Any,
    ) -> Any:
        """Add Σ rα / (r + α), α = whole · share, over a bin's segments to ``sums`` (64 floats).

        Two fractions are brought to one denominator. ``segments`` is even: behind an odd number
        lies a row of zeros with a share of 1.
        """
        signature = types.void(counts, at, segments, shares, sums)

        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            source, parts, target = (
                data(context, builder, signature.args[at], values[at]) for at in (0, 3, 4)
            )

            def row_at(index: Any) -> list[Any]:
                place = builder.add(values[1], builder.mul(index, number(CHILDREN)))
                if not wide:
                    return [load(builder, source, place, BYTES)]
                places = [builder.add(place, number(16 * part)) for part in range(4)]
                return [load(builder, source, place, FLOATS) for place in places]

            def floats(row: list[Any]) -> list[Any]:
                return row if wide else widen(builder, row[0])

            def total(index: Any, held: list[Any]) -> list[Any]:
                add = builder.fadd if wide else builder.add
                return [add(old, more) for old, more in zip(held, row_at(index), strict=True)]

            empty = [ir.Constant(FLOATS, [0.0] * 16)] * 4 if wide else [nothing()]
            whole = loop(builder, number(0), values[2], 1, empty, total)
            tiny = ir.Constant(FLOATS, [TINY] * 16)
            wholes = [
                call(builder, "llvm.maxnum.v16f32", FLOATS, [part, tiny]) for part in floats(whole)
            ]

            def evaluate(index: Any, held: list[Any]) -> list[Any]:
                places = (index, builder.add(index, number(1)))
                ones, twos = (floats(row_at(place)) for place in places)
                share_one, share_two = (
                    splat(builder, builder.load(builder.gep(parts, [place])), FLOATS)
                    for place in places
                )
                return [
                    _add_two(
                        builder,
                        ones[part],
                        builder.fmul(wholes[part], share_one),
                        twos[part],
                        builder.fmul(wholes[part], share_two),
                        old,
                    )
                    for part, old in enumerate(held)
                ]

            before = [load(builder, target, number(16 * part), FLOATS) for part in range(4)]
            after = loop(builder, number(0), values[2], 2, before, evaluate)
            for part, value in enumerate(after):
                store(builder, value, target, number(16 * part))
            return context.get_dummy_value()

        return signature, generate

    return add_bin


add_bin, add_wide_bin = make_add(False), make_add(True)


@inline
def add_sample(
    typing: Any,  # noqa: ARG001
    rows: Any,
    own: Any,
    first: Any,
    last: Any,
    stop: Any,
    share: Any,
    sums: Any,
) -> Any:
    """Add α / (r + α) of row ``own`` to ``sums`` (64 floats).

    r are the rows first … last (its segment) with its byte; α is the share of those of 0 … stop.
    """
    signature = types.void(rows, own, first, last, stop, share, sums)

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        source = data(context, builder, signature.args[0], values[0])
        target = data(context, builder, signature.args[6], values[6])

        def row_at(index: Any) -> Any:
            return load(builder, source, builder.mul(index, number(CHILDREN)), BYTES)

        wanted = row_at(values[1])

        def add(index: Any, held: list[Any]) -> list[Any]:
            return [add_equal(builder, held[0], row_at(index), wanted)]

        segment = loop(builder, values[2], values[3], 1, [nothing()], add)
        cell = loop(builder, number(0), values[2], 1, segment, add)
        cell = loop(builder, values[3], values[4], 1, cell, add)
        share = splat(builder, values[5], FLOATS)
        pairs = zip(widen(builder, segment[0]), widen(builder, cell[0]), strict=True)
        for part, (r, whole) in enumerate(pairs):
            expected = builder.fmul(whole, share)
            inverse = reciprocal(builder, builder.fadd(r, expected))
            place = number(16 * part)
            before = load(builder, target, place, FLOATS)
            store(builder, fma(builder, expected, inverse, before), target, place)
        return context.get_dummy_value()

    return signature, generate

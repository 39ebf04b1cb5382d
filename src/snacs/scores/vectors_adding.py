"""Evaluating and adding overlaps, 64 children in four vectors of floats."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types

from snacs.scores.vectors import (
    BYTE,
    BYTES,
    CHILDREN,
    FLOATS,
    INT,
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


def _divided(builder: Any, top: Any, bottom: Any, old: Any) -> Any:
    """Return old + top / bottom."""
    return fma(builder, top, reciprocal(builder, bottom), old)


def _any(builder: Any, vectors: list[Any]) -> Any:
    """Whether any lane of some vectors of bytes or floats is not zero."""
    found = ir.Constant(INT, 0)
    for vector in vectors:
        zero = ir.Constant(vector.type, [0] * vector.type.count)
        if vector.type == BYTES:
            lanes = builder.icmp_unsigned("!=", vector, zero)
        else:
            lanes = builder.fcmp_ordered("!=", vector, zero)
        bits = builder.bitcast(lanes, ir.IntType(vector.type.count))
        found = builder.or_(found, bits if bits.type == INT else builder.zext(bits, INT))
    return builder.icmp_unsigned("!=", found, number(0))


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

        The shares of a cell add up to one, so that this is whole − whole² Σ share² / (r + α). Two
        fractions are brought to one denominator; a bin without samples adds nothing.
        """
        signature = types.void(counts, at, segments, shares, sums)

        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            source, parts, target = (
                data(context, builder, signature.args[at], values[at]) for at in (0, 3, 4)
            )

            zeros = ir.Constant(FLOATS, [0.0] * 16)

            def row_at(index: Any) -> list[Any]:
                if wide:
                    return floats_at(index)
                place = builder.add(values[1], builder.mul(index, number(CHILDREN)))
                return [load(builder, source, place, BYTES)]

            def floats_at(index: Any) -> list[Any]:
                place = builder.add(values[1], builder.mul(index, number(CHILDREN)))
                places = [builder.add(place, number(16 * part)) for part in range(4)]
                if wide:
                    return [load(builder, source, place, FLOATS) for place in places]
                few = ir.VectorType(BYTE, 16)
                return [
                    builder.uitofp(load(builder, source, place, few), FLOATS) for place in places
                ]

            def total(index: Any, held: list[Any]) -> list[Any]:
                add = builder.fadd if wide else builder.add
                return [add(old, more) for old, more in zip(held, row_at(index), strict=True)]

            def share_of(place: Any) -> Any:
                return splat(builder, builder.load(builder.gep(parts, [place])), FLOATS)

            def add_overlaps(counted: list[Any]) -> None:
                tiny = ir.Constant(FLOATS, [TINY] * 16)
                wholes = [
                    call(builder, "llvm.maxnum.v16f32", FLOATS, [part, tiny]) for part in counted
                ]

                def one(index: Any, held: list[Any]) -> list[Any]:
                    share = share_of(index)
                    square = builder.fmul(share, share)
                    return [
                        _divided(builder, square, fma(builder, whole, share, r), old)
                        for whole, r, old in zip(wholes, floats_at(index), held, strict=True)
                    ]

                def two(index: Any, held: list[Any]) -> list[Any]:
                    places = (index, builder.add(index, number(1)))
                    shares = [share_of(place) for place in places]
                    squares = [builder.fmul(share, share) for share in shares]
                    rows = [floats_at(place) for place in places]
                    after = []
                    for part, old in enumerate(held):
                        b1, b2 = (
                            fma(builder, wholes[part], share, row[part])
                            for share, row in zip(shares, rows, strict=True)
                        )
                        top = fma(builder, squares[0], b2, builder.fmul(squares[1], b1))
                        after.append(_divided(builder, top, builder.fmul(b1, b2), old))
                    return after

                even = builder.and_(values[2], number(-2))
                found = loop(builder, number(0), even, 2, [zeros] * 4, two)
                found = loop(builder, even, values[2], 1, found, one)
                for part, (whole, value) in enumerate(zip(wholes, found, strict=True)):
                    square = builder.fneg(builder.fmul(whole, whole))
                    overlap = fma(builder, square, value, whole)
                    place = number(16 * part)
                    before = load(builder, target, place, FLOATS)
                    store(builder, builder.fadd(before, overlap), target, place)

            empty = [zeros] * 4 if wide else [nothing()]
            whole = loop(builder, number(0), values[2], 1, empty, total)
            with builder.if_then(_any(builder, whole)):
                add_overlaps(whole if wide else widen(builder, whole[0]))
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

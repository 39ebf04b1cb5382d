"""Counting how often bytes occur among the samples of a segment, 64 children in a vector."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types

from snacs.scores.vectors import (
    BYTE,
    BYTES,
    CHILDREN,
    INT,
    add_equal,
    call,
    data,
    inline,
    load,
    loop,
    nothing,
    number,
    splat,
    store,
)

STRAIGHT = 5
"""Bins that one pass counts: two pairs in the halves of bytes, and what they leave."""


@inline
def gather_rows(
    typing: Any,  # noqa: ARG001
    codes: Any,
    base: Any,
    order: Any,
    first: Any,
    last: Any,
    rows: Any,
) -> Any:
    """Copy the bytes of the samples order[first:last] to ``rows``; the largest of all bytes.

    ``codes`` and ``rows`` are flat; a sample's bytes begin at base + 64 · sample.
    """
    signature = types.int64(codes, base, order, first, last, rows)

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        source, places, target = (
            data(context, builder, signature.args[at], values[at]) for at in (0, 2, 5)
        )

        def copy(index: Any, held: list[Any]) -> list[Any]:
            sample = builder.sext(builder.load(builder.gep(places, [index])), INT)
            at = builder.add(values[1], builder.mul(sample, number(CHILDREN)))
            row = load(builder, source, at, BYTES)
            store(
                builder,
                row,
                target,
                builder.mul(builder.sub(index, values[3]), number(CHILDREN)),
            )
            return [call(builder, "llvm.umax.v64i8", BYTES, [held[0], row])]

        (top,) = loop(builder, values[3], values[4], 1, [nothing()], copy)
        return builder.zext(call(builder, "llvm.vector.reduce.umax.v64i8", BYTE, [top]), INT)

    return signature, generate


def make_count(planes: int) -> Any:
    """Make ``count_bins`` for some planes."""

    @inline
    def count_bins(
        typing: Any,  # noqa: ARG001
        rows: Any,
        first: Any,
        last: Any,
        code: Any,
        counts: Any,
        at: Any,
        stride: Any,
    ) -> Any:
        """How many of the rows first … last hold the bytes code, code + 1, … (``planes`` of them).

        Written to ``counts`` (flat bytes) at ``at``, ``at`` + stride, ….
        """
        signature = types.void(rows, first, last, code, counts, at, stride)

        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            source = data(context, builder, signature.args[0], values[0])
            target = data(context, builder, signature.args[4], values[4])
            wanted = [
                splat(builder, builder.trunc(builder.add(values[3], number(plane)), BYTE), BYTES)
                for plane in range(planes)
            ]

            def add(index: Any, held: list[Any]) -> list[Any]:
                row = load(builder, source, builder.mul(index, number(CHILDREN)), BYTES)
                return [
                    add_equal(builder, total, row, code)
                    for total, code in zip(held, wanted, strict=True)
                ]

            place = values[5]
            for total in loop(builder, values[1], values[2], 1, [nothing()] * planes, add):
                store(builder, total, target, place)
                place = builder.add(place, values[6])
            return context.get_dummy_value()

        return signature, generate

    return count_bins


count_four = make_count(4)


def _pair_table(builder: Any, code: Any) -> Any:
    """A table of 16 bytes, four times: 1 for ``code``, 16 for the code after it, 0 for others."""
    place = ir.Constant(BYTES, [lane % 16 for lane in range(CHILDREN)])
    table = nothing()
    for step, weight in ((0, 1), (1, 16)):
        wanted = splat(builder, builder.trunc(builder.add(code, number(step)), BYTE), BYTES)
        entry = ir.Constant(BYTES, [weight] * CHILDREN)
        here = builder.icmp_unsigned("==", place, wanted)
        table = builder.or_(table, builder.select(here, entry, nothing()))
    return table


def _sum_halves(
    builder: Any, row_at: Callable[[Any], Any], first: Any, last: Any, code: Any, pairs: int
) -> list[Any]:
    """How many of the rows first … last hold the bytes code, code + 1, … (2 · ``pairs`` of them).

    Bytes are below 16. A table turns a byte into 1 for one bin and 16 for the next, so that one sum
    of up to 15 rows counts both in the halves of a byte.
    """
    tables = [_pair_table(builder, builder.add(code, number(2 * pair))) for pair in range(pairs)]
    low = ir.Constant(BYTES, [15] * CHILDREN)
    four = ir.Constant(BYTES, [4] * CHILDREN)

    def add(index: Any, held: list[Any]) -> list[Any]:
        row = row_at(index)
        name = "llvm.x86.avx512.pshuf.b.512"
        found = [call(builder, name, BYTES, [table, row]) for table in tables]
        return [builder.add(old, more) for old, more in zip(held, found, strict=True)]

    def some(index: Any, held: list[Any]) -> list[Any]:
        stop = builder.add(index, number(15))
        over = builder.icmp_signed("<", stop, last)
        stop = builder.select(over, stop, last)
        after = []
        for pair, both in enumerate(loop(builder, index, stop, 1, [nothing()] * pairs, add)):
            after.append(builder.add(held[2 * pair], builder.and_(both, low)))
            after.append(builder.add(held[2 * pair + 1], builder.lshr(both, four)))
        return after

    return loop(builder, first, last, 15, [nothing()] * (2 * pairs), some)


def make_halves(pairs: int) -> Any:
    """Make ``count_halves`` for some pairs of bins."""

    @inline
    def count_halves(
        typing: Any,  # noqa: ARG001
        rows: Any,
        first: Any,
        last: Any,
        code: Any,
        counts: Any,
        at: Any,
        stride: Any,
    ) -> Any:
        """``count_bins`` of 2 · ``pairs`` planes, for bytes below 16."""
        signature = types.void(rows, first, last, code, counts, at, stride)

        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            source = data(context, builder, signature.args[0], values[0])
            target = data(context, builder, signature.args[4], values[4])

            def row_at(index: Any) -> Any:
                return load(builder, source, builder.mul(index, number(CHILDREN)), BYTES)

            place = values[5]
            for total in _sum_halves(builder, row_at, values[1], values[2], values[3], pairs):
                store(builder, total, target, place)
                place = builder.add(place, values[6])
            return context.get_dummy_value()

        return signature, generate

    return count_halves


count_pair, count_pairs = make_halves(1), make_halves(2)


@inline
def count_through(
    typing: Any,  # noqa: ARG001
    codes: Any,
    base: Any,
    order: Any,
    first: Any,
    last: Any,
    counts: Any,
    at: Any,
    stride: Any,
) -> Any:
    """How many of the samples order[first:last] hold each of the first STRAIGHT bytes.

    There must be no others.

    ``codes`` is as in ``gather_rows``, whose copy one pass over few bins does not need. Written to
    ``counts`` (flat bytes) at ``at``, ``at`` + stride, ….
    """
    signature = types.void(codes, base, order, first, last, counts, at, stride)

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        source, places, target = (
            data(context, builder, signature.args[at], values[at]) for at in (0, 2, 5)
        )

        def row_at(index: Any) -> Any:
            sample = builder.sext(builder.load(builder.gep(places, [index])), INT)
            at = builder.add(values[1], builder.mul(sample, number(CHILDREN)))
            return load(builder, source, at, BYTES)

        counted = _sum_halves(builder, row_at, values[3], values[4], number(1), STRAIGHT // 2)
        length = builder.trunc(builder.sub(values[4], values[3]), BYTE)
        left = splat(builder, length, BYTES)
        for total in counted:
            left = builder.sub(left, total)
        place = values[6]
        for total in (left, *counted):
            store(builder, total, target, place)
            place = builder.add(place, values[7])
        return context.get_dummy_value()

    return signature, generate


@inline
def count_rest(
    typing: Any,  # noqa: ARG001
    counts: Any,
    at: Any,
    stride: Any,
    bins: Any,
    length: Any,
) -> Any:
    """Bin 0 of a segment holds what the other bins leave of its length."""
    signature = types.void(counts, at, stride, bins, length)

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        target = data(context, builder, signature.args[0], values[0])

        def take(index: Any, held: list[Any]) -> list[Any]:
            place = builder.add(values[1], builder.mul(index, values[2]))
            return [builder.sub(held[0], load(builder, target, place, BYTES))]

        whole = splat(builder, builder.trunc(values[4], BYTE), BYTES)
        (left,) = loop(builder, number(1), values[3], 1, [whole], take)
        store(builder, left, target, values[1])
        return context.get_dummy_value()

    return signature, generate

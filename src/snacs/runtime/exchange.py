"""Compiled operations that bring a batch from torch's order, (image, channel, y, x), and back."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types

from snacs.runtime import fields as f
from snacs.runtime.compiling import compiled
from snacs.runtime.sharing import masked_load
from snacs.runtime.vectors import (
    INT,
    LANES,
    SHORT,
    data_of,
    inline,
    load,
    mask_of,
    store,
    store_masked,
)

_FLOATS = ir.FloatType().as_pointer()


def _turned(builder: Any, rows: list[Any]) -> list[Any]:
    """A square of vectors transposed, by exchanging ever larger blocks between pairs of them."""
    size = 1
    while size < LANES:
        for first in range(LANES):
            if first & size:
                continue
            low, high = rows[first], rows[first + size]
            lanes = range(LANES)
            above = [lane if not lane & size else LANES + (lane ^ size) for lane in lanes]
            below = [lane ^ size if not lane & size else LANES + lane for lane in lanes]
            kind = ir.VectorType(SHORT, LANES)
            rows[first] = builder.shuffle_vector(low, high, ir.Constant(kind, above))
            rows[first + size] = builder.shuffle_vector(low, high, ir.Constant(kind, below))
        size *= 2
    return rows


def _mask_of_image(builder: Any, lane: int, images: Any, pixels: Any) -> Any:
    """The pixels' mask for an image that is there, none for one that is not."""
    there = builder.icmp_signed("<", ir.Constant(INT, lane), images)
    return builder.select(there, pixels, ir.Constant(INT, 0))


def _image(builder: Any, address: Any, step: Any, lane: int) -> Any:
    """Where the pixels of one image begin; images are ``step`` floats apart."""
    return builder.add(address, builder.mul(step, ir.Constant(INT, 4 * lane)))


@inline
def turn_in(
    typing: Any,  # noqa: ARG001
    sums: Any,
    address: Any,  # noqa: ARG001
    step: Any,  # noqa: ARG001
    pixels: Any,  # noqa: ARG001
    images: Any,  # noqa: ARG001
) -> Any:
    """``sums[pixel, image] = memory[address, image · step + pixel]``, a square; else 0."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        data = data_of(context, builder, signature.args[0], values[0])
        rows = []
        for lane in range(LANES):
            mask = _mask_of_image(builder, lane, values[4], values[3])
            rows.append(_masked_load(builder, _image(builder, values[1], values[2], lane), mask))
        for lane, row in enumerate(_turned(builder, rows)):
            store(builder, row, data, ir.Constant(INT, lane * LANES))
        return context.get_dummy_value()

    return types.void(sums, types.int64, types.int64, types.int64, types.int64), generate


@inline
def turn_out(
    typing: Any,  # noqa: ARG001
    address: Any,  # noqa: ARG001
    step: Any,  # noqa: ARG001
    sums: Any,
    pixels: Any,  # noqa: ARG001
    images: Any,  # noqa: ARG001
) -> Any:
    """``memory[address, image · step + pixel] = sums[pixel, image]``, a square."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        data = data_of(context, builder, signature.args[2], values[2])
        rows = [load(builder, data, ir.Constant(INT, lane * LANES)) for lane in range(LANES)]
        for lane, row in enumerate(_turned(builder, rows)):
            mask = _mask_of_image(builder, lane, values[4], values[3])
            place = builder.inttoptr(_image(builder, values[0], values[1], lane), _FLOATS)
            store_masked(builder, row, place, ir.Constant(INT, 0), mask)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, sums, types.int64, types.int64), generate


def _masked_load(builder: Any, address: Any, bits: Any) -> Any:
    """Masked, since what lies behind a tensor's end may not be ours to read."""
    return masked_load(builder, builder.inttoptr(address, _FLOATS), mask_of(builder, bits))


@inline
def move(typing: Any, target: Any, place: Any, source: Any, at: Any) -> Any:  # noqa: ARG001
    """``target[place] = source[at]``, a vector."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        to = data_of(context, builder, signature.args[0], values[0])
        vector = load(builder, data_of(context, builder, signature.args[2], values[2]), values[3])
        store(builder, vector, to, values[1])
        return context.get_dummy_value()

    return types.void(target, types.int64, source, types.int64), generate


@inline
def take(typing: Any, arena: Any, place: Any, address: Any, mask: Any) -> Any:  # noqa: ARG001
    """``arena[place] = memory[address]`` for the neighbouring lanes of ``mask``."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        data = data_of(context, builder, signature.args[0], values[0])
        vector = _masked_load(builder, values[2], values[3])
        store_masked(builder, vector, data, values[1], values[3])
        return context.get_dummy_value()

    return types.void(arena, types.int64, types.int64, types.int64), generate


@inline
def give(typing: Any, address: Any, arena: Any, place: Any, mask: Any) -> Any:  # noqa: ARG001
    """``memory[address] = arena[place]`` for the neighbouring lanes of ``mask``."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        data = data_of(context, builder, signature.args[1], values[1])
        target = builder.inttoptr(values[0], _FLOATS)
        vector = load(builder, data, values[2])
        store_masked(builder, vector, target, ir.Constant(INT, 0), values[3])
        return context.get_dummy_value()

    return types.void(types.int64, arena, types.int64, types.int64), generate


@compiled
def pack(op: Any, first: int, last: int, block: int, images: int, arena: Any, sums: Any) -> None:
    """Channels ``first`` to ``last`` of a block, from torch."""
    unit, width, size = op[f.UNIT], op[f.COLUMNS], op[f.HEIGHT] * op[f.COLUMNS]
    step = op[f.CHANNELS] * size
    here = min(unit, images - block * unit)
    # Rows without zeros between them are one long row.
    lines, length = (1, size) if op[f.OUT_ROW] == width else (op[f.HEIGHT], width)
    for channel in range(first, last):
        plane = op[f.OUT] + channel * op[f.OUT_PLANE] + op[f.OUT_ORIGIN]
        address = op[f.IO] + 4 * (block * unit * step + channel * size)
        if unit == 1:
            for y in range(lines):
                place, at = plane + y * op[f.OUT_ROW], address + 4 * y * length
                for x in range(0, length, LANES):
                    mask = (1 << min(LANES, length - x)) - 1
                    take(arena, place + x, at + 4 * x, mask)
            continue
        for pixel in range(0, size, LANES):
            count = min(LANES, size - pixel)
            turn_in(sums, address + 4 * pixel, step, (1 << count) - 1, here)
            for i in range(count):
                y, x = (pixel + i) // width, (pixel + i) % width
                move(arena, plane + y * op[f.OUT_ROW] + x * unit, sums, i * LANES)


@compiled
def unpack(op: Any, first: int, last: int, block: int, images: int, arena: Any, sums: Any) -> None:
    """Channels ``first`` to ``last`` of a block, to torch."""
    unit, width, size = op[f.UNIT], op[f.COLUMNS], op[f.HEIGHT] * op[f.COLUMNS]
    step = op[f.CHANNELS] * size
    here = min(unit, images - block * unit)
    lines, length = (1, size) if op[f.X_ROW] == width else (op[f.HEIGHT], width)
    for channel in range(first, last):
        plane = op[f.X] + channel * op[f.X_PLANE] + op[f.X_ORIGIN]
        address = op[f.IO] + 4 * (block * unit * step + channel * size)
        if unit == 1:
            for y in range(lines):
                place, at = plane + y * op[f.X_ROW], address + 4 * y * length
                for x in range(0, length, LANES):
                    mask = (1 << min(LANES, length - x)) - 1
                    give(at + 4 * x, arena, place + x, mask)
            continue
        for pixel in range(0, size, LANES):
            count = min(LANES, size - pixel)
            for i in range(count):
                y, x = (pixel + i) // width, (pixel + i) % width
                move(sums, i * LANES, arena, plane + y * op[f.X_ROW] + x * unit)
            turn_out(address + 4 * pixel, step, sums, (1 << count) - 1, here)

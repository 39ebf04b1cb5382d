"""Compiled operations that bring a batch from torch's order, (image, channel, y, x), and back."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types

from snacs.runtime import fields as f
from snacs.runtime.compiling import compiled
from snacs.runtime.vectors import (
    FLAGS,
    INT,
    LANES,
    SHORT,
    VECTOR,
    data_of,
    external,
    inline,
    load,
    mask_of,
    store,
    store_masked,
)

_PLACES = ir.VectorType(ir.FloatType().as_pointer(), LANES)


@inline
def move(typing: Any, target: Any, place: Any, source: Any, at: Any, mask: Any) -> Any:  # noqa: ARG001
    """``target[place] = source[at]`` for the neighbouring lanes of ``mask``."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        targets = data_of(context, builder, signature.args[0], values[0])
        sources = data_of(context, builder, signature.args[2], values[2])
        vector = load(builder, sources, values[3])
        store_masked(builder, vector, targets, values[1], values[4])
        return context.get_dummy_value()

    return types.void(target, types.int64, source, types.int64, types.int64), generate


def _places(builder: Any, pointer: Any, at: Any, step: Any) -> Any:
    """Addresses of one float of each image."""
    base = builder.ptrtoint(builder.gep(pointer, [at]), INT)
    vector = ir.Constant(_PLACES, ir.Undefined)
    for lane in range(LANES):
        skip = builder.mul(step, ir.Constant(INT, 4 * lane))
        address = builder.inttoptr(builder.add(base, skip), ir.FloatType().as_pointer())
        vector = builder.insert_element(vector, address, ir.Constant(SHORT, lane))
    return vector


@inline
def collect(
    typing: Any,  # noqa: ARG001
    target: Any,
    place: Any,  # noqa: ARG001
    source: Any,
    at: Any,  # noqa: ARG001
    step: Any,  # noqa: ARG001
    mask: Any,  # noqa: ARG001
) -> Any:
    """``target[place + lane] = source[at + lane · step]`` in the lanes of ``mask``, else 0."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        targets = data_of(context, builder, signature.args[0], values[0])
        sources = data_of(context, builder, signature.args[2], values[2])
        gather = external(
            builder,
            f"llvm.masked.gather.v{LANES}f32.v{LANES}p0",
            VECTOR,
            [_PLACES, SHORT, FLAGS, VECTOR],
        )
        places = _places(builder, sources, values[3], values[4])
        align, zeros = ir.Constant(SHORT, 4), ir.Constant(VECTOR, [0.0] * LANES)
        vector = builder.call(gather, [places, align, mask_of(builder, values[5]), zeros])
        store(builder, vector, targets, values[1])
        return context.get_dummy_value()

    numbers = (types.int64, types.int64, types.int64)
    return types.void(target, types.int64, source, *numbers), generate


@inline
def spread(
    typing: Any,  # noqa: ARG001
    target: Any,
    place: Any,  # noqa: ARG001
    step: Any,  # noqa: ARG001
    source: Any,
    at: Any,  # noqa: ARG001
    mask: Any,  # noqa: ARG001
) -> Any:
    """``target[place + lane · step] = source[at + lane]`` in the lanes of ``mask``."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        targets = data_of(context, builder, signature.args[0], values[0])
        sources = data_of(context, builder, signature.args[3], values[3])
        scatter = external(
            builder,
            f"llvm.masked.scatter.v{LANES}f32.v{LANES}p0",
            ir.VoidType(),
            [VECTOR, _PLACES, SHORT, FLAGS],
        )
        vector = load(builder, sources, values[4])
        places = _places(builder, targets, values[1], values[2])
        align = ir.Constant(SHORT, 4)
        builder.call(scatter, [vector, places, align, mask_of(builder, values[5])])
        return context.get_dummy_value()

    numbers = (types.int64, types.int64)
    return types.void(target, *numbers, source, *numbers), generate


@compiled
def pack(op: Any, first: int, last: int, block: int, images: int, arena: Any, io: Any) -> None:
    """Channels ``first`` to ``last`` of a block, from torch."""
    unit, width, size = op[f.UNIT], op[f.COLUMNS], op[f.HEIGHT] * op[f.COLUMNS]
    step = op[f.CHANNELS] * size
    there = (1 << min(unit, images - block * unit)) - 1
    for channel in range(first, last):
        for y in range(op[f.HEIGHT]):
            place = op[f.OUT] + channel * op[f.OUT_PLANE] + op[f.OUT_ORIGIN] + y * op[f.OUT_ROW]
            at = op[f.IO] + block * unit * step + channel * size + y * width
            if unit > 1:
                for x in range(width):
                    collect(arena, place + x * unit, io, at + x, step, there)
            else:
                for x in range(0, width, LANES):
                    move(arena, place + x, io, at + x, (1 << min(LANES, width - x)) - 1)


@compiled
def unpack(op: Any, first: int, last: int, block: int, images: int, arena: Any, io: Any) -> None:
    """Channels ``first`` to ``last`` of a block, to torch."""
    unit, width, size = op[f.UNIT], op[f.COLUMNS], op[f.HEIGHT] * op[f.COLUMNS]
    step = op[f.CHANNELS] * size
    there = (1 << min(unit, images - block * unit)) - 1
    for channel in range(first, last):
        for y in range(op[f.HEIGHT]):
            at = op[f.X] + channel * op[f.X_PLANE] + op[f.X_ORIGIN] + y * op[f.X_ROW]
            place = op[f.IO] + block * unit * step + channel * size + y * width
            if unit > 1:
                for x in range(width):
                    spread(io, place + x, step, arena, at + x * unit, there)
            else:
                for x in range(0, width, LANES):
                    move(io, place + x, arena, at + x, (1 << min(LANES, width - x)) - 1)

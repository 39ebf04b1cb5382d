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

_FLOATS = ir.FloatType().as_pointer()
_PLACES = ir.VectorType(_FLOATS, LANES)
_ALIGN = ir.Constant(SHORT, 4)
_ZEROS = ir.Constant(VECTOR, [0.0] * LANES)


def _places(builder: Any, address: Any, step: Any) -> Any:
    """Addresses of one float of each image, ``step`` floats apart."""
    vector = ir.Constant(_PLACES, ir.Undefined)
    for lane in range(LANES):
        skip = builder.mul(step, ir.Constant(INT, 4 * lane))
        place = builder.inttoptr(builder.add(address, skip), _FLOATS)
        vector = builder.insert_element(vector, place, ir.Constant(SHORT, lane))
    return vector


@inline
def take(typing: Any, arena: Any, place: Any, address: Any, mask: Any) -> Any:  # noqa: ARG001
    """``arena[place] = memory[address]`` for the neighbouring lanes of ``mask``."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        data = data_of(context, builder, signature.args[0], values[0])
        # Masked: what lies behind a tensor's end may not be ours to read.
        name = f"llvm.masked.load.v{LANES}f32.p0"
        read = external(builder, name, VECTOR, [VECTOR.as_pointer(), SHORT, FLAGS, VECTOR])
        source = builder.inttoptr(values[2], VECTOR.as_pointer())
        vector = builder.call(read, [source, _ALIGN, mask_of(builder, values[3]), _ZEROS])
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


@inline
def collect(
    typing: Any,  # noqa: ARG001
    arena: Any,
    place: Any,  # noqa: ARG001
    address: Any,  # noqa: ARG001
    step: Any,  # noqa: ARG001
    mask: Any,  # noqa: ARG001
) -> Any:
    """``arena[place + lane] = memory[address, lane · step]`` in the lanes of ``mask``, else 0."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        data = data_of(context, builder, signature.args[0], values[0])
        name = f"llvm.masked.gather.v{LANES}f32.v{LANES}p0"
        gather = external(builder, name, VECTOR, [_PLACES, SHORT, FLAGS, VECTOR])
        places = _places(builder, values[2], values[3])
        vector = builder.call(gather, [places, _ALIGN, mask_of(builder, values[4]), _ZEROS])
        store(builder, vector, data, values[1])
        return context.get_dummy_value()

    numbers = (types.int64, types.int64, types.int64, types.int64)
    return types.void(arena, *numbers), generate


@inline
def spread(
    typing: Any,  # noqa: ARG001
    address: Any,  # noqa: ARG001
    step: Any,  # noqa: ARG001
    arena: Any,
    place: Any,  # noqa: ARG001
    mask: Any,  # noqa: ARG001
) -> Any:
    """``memory[address, lane · step] = arena[place + lane]`` in the lanes of ``mask``."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        data = data_of(context, builder, signature.args[2], values[2])
        name = f"llvm.masked.scatter.v{LANES}f32.v{LANES}p0"
        scatter = external(builder, name, ir.VoidType(), [VECTOR, _PLACES, SHORT, FLAGS])
        vector = load(builder, data, values[3])
        places = _places(builder, values[0], values[1])
        builder.call(scatter, [vector, places, _ALIGN, mask_of(builder, values[4])])
        return context.get_dummy_value()

    numbers = (types.int64, types.int64)
    return types.void(*numbers, arena, *numbers), generate


@compiled
def pack(op: Any, first: int, last: int, block: int, images: int, arena: Any) -> None:
    """Channels ``first`` to ``last`` of a block, from torch."""
    unit, width, size = op[f.UNIT], op[f.COLUMNS], op[f.HEIGHT] * op[f.COLUMNS]
    step = op[f.CHANNELS] * size
    there = (1 << min(unit, images - block * unit)) - 1
    for channel in range(first, last):
        for y in range(op[f.HEIGHT]):
            place = op[f.OUT] + channel * op[f.OUT_PLANE] + op[f.OUT_ORIGIN] + y * op[f.OUT_ROW]
            address = op[f.IO] + 4 * (block * unit * step + channel * size + y * width)
            if unit > 1:
                for x in range(width):
                    collect(arena, place + x * unit, address + 4 * x, step, there)
            else:
                for x in range(0, width, LANES):
                    take(arena, place + x, address + 4 * x, (1 << min(LANES, width - x)) - 1)


@compiled
def unpack(op: Any, first: int, last: int, block: int, images: int, arena: Any) -> None:
    """Channels ``first`` to ``last`` of a block, to torch."""
    unit, width, size = op[f.UNIT], op[f.COLUMNS], op[f.HEIGHT] * op[f.COLUMNS]
    step = op[f.CHANNELS] * size
    there = (1 << min(unit, images - block * unit)) - 1
    for channel in range(first, last):
        for y in range(op[f.HEIGHT]):
            at = op[f.X] + channel * op[f.X_PLANE] + op[f.X_ORIGIN] + y * op[f.X_ROW]
            address = op[f.IO] + 4 * (block * unit * step + channel * size + y * width)
            if unit > 1:
                for x in range(width):
                    spread(address + 4 * x, step, arena, at + x * unit, there)
            else:
                for x in range(0, width, LANES):
                    give(address + 4 * x, arena, at + x, (1 << min(LANES, width - x)) - 1)

"""Sixteen samples at a time for numba, written down in LLVM.

LLVM cannot know that the sums are not the means, so it would load and store them for every tap of a
kernel; here they stay in registers.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import config, types
from numba.extending import intrinsic

LANES = 16
"""Samples at a time: their sums fill two cache lines, and their means stay in a near cache."""
COMPILED = not getattr(config, "DISABLE_JIT", 0)

_INT, _LANE = ir.IntType(64), ir.IntType(32)
_FLOATS = ir.VectorType(ir.DoubleType(), 8)


def _inline(function: Any) -> Any:
    return intrinsic(function)


@_inline
def _add_taps(
    typing: Any,  # noqa: ARG001
    means: Any,
    at: Any,
    weight: Any,
    first: Any,
    taps: Any,
    sums: Any,
    place: Any,
) -> Any:
    signature = types.void(means, at, weight, first, taps, sums, place)

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        def data(index: int) -> Any:
            return context.make_array(signature.args[index])(context, builder, values[index]).data

        def vector(pointer: Any, index: Any, half: int) -> Any:
            index = builder.add(index, ir.Constant(_INT, 8 * half))
            return builder.bitcast(builder.gep(pointer, [index]), _FLOATS.as_pointer())

        means, weight, sums = data(0), data(2), data(5)
        before = builder.block
        inside, done = builder.append_basic_block("tap"), builder.append_basic_block("done")
        places = [vector(sums, values[6], half) for half in (0, 1)]
        start = [builder.load(place, align=8) for place in places]
        builder.branch(inside)
        builder.position_at_end(inside)
        tap = builder.phi(_INT)
        tap.add_incoming(ir.Constant(_INT, 0), before)
        held = [builder.phi(_FLOATS) for _ in start]
        for phi, value in zip(held, start, strict=True):
            phi.add_incoming(value, before)
        scalar = builder.load(builder.gep(weight, [builder.add(values[3], tap)]))
        empty = ir.Constant(_FLOATS, ir.Undefined)
        factor = builder.insert_element(empty, scalar, ir.Constant(_LANE, 0))
        zeros = ir.Constant(ir.VectorType(_LANE, 8), [0] * 8)
        factor = builder.shuffle_vector(factor, empty, zeros)
        row = builder.add(values[1], builder.mul(tap, ir.Constant(_INT, LANES)))
        name, kind = "llvm.fmuladd.v8f64", ir.FunctionType(_FLOATS, [_FLOATS] * 3)
        add = builder.module.globals.get(name) or ir.Function(builder.module, kind, name)
        after = [
            builder.call(add, [factor, builder.load(vector(means, row, half), align=8), old])
            for half, old in enumerate(held)
        ]
        following = builder.add(tap, ir.Constant(_INT, 1))
        tap.add_incoming(following, inside)
        for phi, value in zip(held, after, strict=True):
            phi.add_incoming(value, inside)
        builder.cbranch(builder.icmp_signed("<", following, values[4]), inside, done)
        builder.position_at_end(done)
        for place, value in zip(places, after, strict=True):
            builder.store(value, place, align=8)
        return context.get_dummy_value()

    return signature, generate


def _add_taps_plain(
    means: Any, at: int, weight: Any, first: int, taps: int, sums: Any, place: int
) -> None:
    weights = weight.reshape(-1)[first : first + taps]
    rows = means.reshape(-1)[at : at + taps * LANES].reshape(taps, LANES)
    sums.reshape(-1)[place : place + LANES] += weights @ rows


add_taps: Any = _add_taps if COMPILED else _add_taps_plain
"""``sums[place:][:16] += Σ_t weight[first + t] · means[at + 16 t:][:16]``, arrays taken as flat."""

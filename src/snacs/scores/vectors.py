"""Vectors of 64 children for numba, written down in LLVM: what stays in registers, what is loaded.

LLVM turns the loops of ``kernels_bytes`` into vectors, but goes through memory after every step,
and each short loop costs more to enter than to run. Here the counts and sums of 64 children stay in
registers while samples or segments pass. Only for processors with AVX-512 and only compiled; the
portable kernels of ``kernels_cells`` compute the same everywhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir
from numba import config
from numba.extending import intrinsic

CHILDREN = 64
"""Children per vector: one byte each."""


def _available() -> bool:
    features = llvm.get_host_cpu_features()
    needed = ("avx512f", "avx512bw", "avx512vl", "avx512dq")
    return not getattr(config, "DISABLE_JIT", 0) and all(
        features.get(name, False) for name in needed
    )


AVAILABLE = _available()
"""Whether the kernels of this file can run here."""

INT, SHORT, BYTE, FLOAT = ir.IntType(64), ir.IntType(32), ir.IntType(8), ir.FloatType()
BYTES, FLOATS = ir.VectorType(BYTE, CHILDREN), ir.VectorType(FLOAT, 16)


def inline(function: Any) -> Any:
    """Make a generator of instructions callable; the call has no ``typing`` argument."""
    return intrinsic(function)


def number(value: int) -> ir.Constant:
    return ir.Constant(INT, value)


def data(context: Any, builder: Any, kind: Any, value: Any) -> Any:
    return context.make_array(kind)(context, builder, value).data


def load(builder: Any, pointer: Any, index: Any, kind: Any) -> Any:
    found = builder.load(builder.bitcast(builder.gep(pointer, [index]), kind.as_pointer()))
    found.align = 1
    return found


def store(builder: Any, vector: Any, pointer: Any, index: Any) -> None:
    place = builder.bitcast(builder.gep(pointer, [index]), vector.type.as_pointer())
    builder.store(vector, place).align = 1


def splat(builder: Any, scalar: Any, kind: Any) -> Any:
    empty = ir.Constant(kind, ir.Undefined)
    first = builder.insert_element(empty, scalar, ir.Constant(SHORT, 0))
    zeros = ir.Constant(ir.VectorType(SHORT, kind.count), [0] * kind.count)
    return builder.shuffle_vector(first, empty, zeros)


def call(builder: Any, name: str, result: Any, values: Sequence[Any]) -> Any:
    known = builder.module.globals.get(name)
    kinds = [value.type for value in values]
    function = known or ir.Function(builder.module, ir.FunctionType(result, kinds), name)
    return builder.call(function, values)


def loop(
    builder: Any,
    first: Any,
    last: Any,
    step: int,
    carried: Sequence[Any],
    body: Callable[[Any, list[Any]], list[Any]],
) -> list[Any]:
    """``for index in range(first, last, step): carried = body(index, carried)``."""
    before = builder.block
    inside, done = builder.append_basic_block("inside"), builder.append_basic_block("done")
    builder.cbranch(builder.icmp_signed("<", first, last), inside, done)
    builder.position_at_end(inside)
    index = builder.phi(INT)
    held = [builder.phi(value.type) for value in carried]
    index.add_incoming(first, before)
    for phi, value in zip(held, carried, strict=True):
        phi.add_incoming(value, before)
    after = body(index, held)
    following = builder.add(index, number(step))
    index.add_incoming(following, builder.block)
    for phi, value in zip(held, after, strict=True):
        phi.add_incoming(value, builder.block)
    end = builder.block
    builder.cbranch(builder.icmp_signed("<", following, last), inside, done)
    builder.position_at_end(done)
    results = [builder.phi(value.type) for value in carried]
    for phi, value, final in zip(results, carried, after, strict=True):
        phi.add_incoming(value, before)
        phi.add_incoming(final, end)
    return results


def nothing() -> ir.Constant:
    return ir.Constant(BYTES, [0] * CHILDREN)


def add_equal(builder: Any, counts: Any, one: Any, two: Any) -> Any:
    """Counts, one more where two vectors of bytes agree."""
    more = builder.add(counts, ir.Constant(BYTES, [1] * CHILDREN))
    return builder.select(builder.icmp_unsigned("==", one, two), more, counts)


def widen(builder: Any, vector: Any) -> list[Any]:
    """64 bytes as four vectors of floats."""
    empty = ir.Constant(BYTES, ir.Undefined)
    lanes = ir.VectorType(SHORT, 16)
    return [
        builder.uitofp(
            builder.shuffle_vector(
                vector, empty, ir.Constant(lanes, list(range(16 * part, 16 * part + 16)))
            ),
            FLOATS,
        )
        for part in range(4)
    ]


def reciprocal(builder: Any, value: Any) -> Any:
    """1 / value to single precision: an estimate of 14 bits and one step of Newton's."""
    zero, one = ir.Constant(FLOATS, [0.0] * 16), ir.Constant(FLOATS, [1.0] * 16)
    mask = ir.Constant(ir.IntType(16), 0xFFFF)
    rough = call(builder, "llvm.x86.avx512.rcp14.ps.512", FLOATS, [value, zero, mask])
    error = fma(builder, builder.fneg(value), rough, one)
    return fma(builder, error, rough, rough)


def fma(builder: Any, x: Any, y: Any, z: Any) -> Any:
    return call(builder, "llvm.fma.v16f32", FLOATS, [x, y, z])

"""Vectors and fused multiply-adds for numba, one LLVM instruction sequence each.

numba leaves vectorising to LLVM, which cannot hold a tile of a convolution in registers across a
loop over an irregular table. These intrinsics write the vector code down: what is loaded once, what
stays in registers, what is multiplied from memory.
"""

from __future__ import annotations

from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir
from numba import types
from numba.extending import intrinsic


def inline(function: Any) -> Any:
    """Make a generator of instructions callable; the call has no ``typing`` argument."""
    return intrinsic(function)


WIDE = bool(llvm.get_host_cpu_features().get("avx512f", False))
"""Whether there are 32 registers of 16 floats; else 16 registers of 8 are assumed."""
LANES = 16 if WIDE else 8
"""Floats per vector: images of a block, or neighbouring pixels."""

FLOAT, INT, SHORT = ir.FloatType(), ir.IntType(64), ir.IntType(32)
VECTOR = ir.VectorType(FLOAT, LANES)
FLAGS = ir.VectorType(ir.IntType(1), LANES)


def _number(value: int) -> ir.Constant:
    return ir.Constant(INT, value)


def data_of(context: Any, builder: Any, kind: Any, value: Any) -> Any:
    return context.make_array(kind)(context, builder, value).data


def load(builder: Any, pointer: Any, index: Any) -> Any:
    found = builder.load(builder.bitcast(builder.gep(pointer, [index]), VECTOR.as_pointer()))
    found.align = 4  # taps start anywhere
    return found


def store(builder: Any, vector: Any, pointer: Any, index: Any) -> None:
    place = builder.bitcast(builder.gep(pointer, [index]), VECTOR.as_pointer())
    builder.store(vector, place).align = 4


def _splat(builder: Any, scalar: Any) -> Any:
    empty = ir.Constant(VECTOR, ir.Undefined)
    first = builder.insert_element(empty, scalar, ir.Constant(SHORT, 0))
    zeros = ir.Constant(ir.VectorType(SHORT, LANES), [0] * LANES)
    return builder.shuffle_vector(first, empty, zeros)


def external(builder: Any, name: str, result: Any, arguments: list[Any]) -> Any:
    known = builder.module.globals.get(name)
    return known or ir.Function(builder.module, ir.FunctionType(result, arguments), name)


def _multiply_add(builder: Any, x: Any, y: Any, z: Any) -> Any:
    name = f"llvm.fmuladd.v{LANES}f32"
    return builder.call(external(builder, name, VECTOR, [VECTOR] * 3), [x, y, z])


def make_taps(vectors: int, taps: int, *, shared: bool = False) -> Any:
    """Make the inner kernel: one input channel, all kept kernels that read it.

    ``acc[row, v] += Σ_t weights[k, t] · x[bases[v] + offset[t]]`` for each kept kernel k. The input
    vectors stay in registers over the loop; a kernel costs one load of each weight, and a load and
    a store of its ``vectors`` sums. With ``shared`` the vectors are neighbouring pixels of a block
    of images under a 3×3 kernel, which have columns of inputs in common.
    """

    @inline
    def add_taps(
        typing: Any,  # noqa: ARG001
        arena: Any,
        start: Any,
        ints: Any,
        bases_at: Any,
        taps_at: Any,
        sums: Any,
        rows: Any,
        weights: Any,
        first: Any,
        last: Any,
    ) -> Any:
        signature = types.void(
            arena, start, ints, bases_at, taps_at, sums, rows, weights, first, last
        )

        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            kinds = signature.args
            pointer = {
                at: data_of(context, builder, kinds[at], values[at]) for at in (0, 2, 5, 6, 7)
            }

            def table(at: Any, index: int) -> Any:
                place = builder.add(at, _number(index))
                return builder.load(builder.gep(pointer[2], [place]))

            held = _held(
                builder, pointer[0], values[1], table, values[3], values[4], vectors, taps, shared
            )
            add_kernels(builder, pointer, held, values[8], values[9], vectors, taps)
            return context.get_dummy_value()

        return signature, generate

    return add_taps


def _held(
    builder: Any,
    arena: Any,
    start: Any,
    table: Any,
    bases_at: Any,
    taps_at: Any,
    vectors: int,
    taps: int,
    shared: bool,
) -> dict[tuple[int, int], Any]:
    """The input vectors, by (vector, tap)."""
    held = {}
    if shared:
        base = builder.add(start, table(bases_at, 0))
        for y in range(3):
            row = builder.add(base, table(taps_at, 3 * y))
            for x in range(vectors + 2):
                column = load(builder, arena, builder.add(row, _number(x * LANES)))
                for v in range(max(0, x - 2), min(vectors, x + 1)):
                    held[v, 3 * y + x - v] = column
        return held
    for v in range(vectors):
        base = builder.add(start, table(bases_at, v))
        for t in range(taps):
            held[v, t] = load(builder, arena, builder.add(base, table(taps_at, t)))
    return held


def add_kernels(
    builder: Any,
    pointer: dict[int, Any],
    held: dict[tuple[int, int], Any],
    first: Any,
    last: Any,
    vectors: int,
    taps: int,
) -> None:
    """Over the kept kernels ``first`` to ``last`` of one channel."""
    before = builder.block
    body, done = builder.append_basic_block("kernel"), builder.append_basic_block("done")
    builder.cbranch(builder.icmp_signed("<", first, last), body, done)
    builder.position_at_end(body)
    kernel = builder.phi(INT)
    kernel.add_incoming(first, before)
    row = builder.sext(builder.load(builder.gep(pointer[6], [kernel])), INT)
    place = builder.mul(row, _number(vectors * LANES))
    places = [builder.add(place, _number(v * LANES)) for v in range(vectors)]
    sums = [load(builder, pointer[5], at) for at in places]
    weight = builder.mul(kernel, _number(taps))
    for t in range(taps):
        at = builder.gep(pointer[7], [builder.add(weight, _number(t))])
        factor = _splat(builder, builder.load(at))
        sums = [_multiply_add(builder, factor, held[v, t], sums[v]) for v in range(vectors)]
    for vector, at in zip(sums, places, strict=True):
        store(builder, vector, pointer[5], at)
    following = builder.add(kernel, _number(1))
    kernel.add_incoming(following, body)
    builder.cbranch(builder.icmp_signed("<", following, last), body, done)
    builder.position_at_end(done)


def make_row(vectors: int) -> Any:
    """Make the inner kernel of a 1×1 convolution: one filter, all channels that it reads.

    ``sums[v] += Σ_k weights[k] · x[columns[k] · plane + bases[v]]``; the sums stay in registers.
    """

    @inline
    def add_row(
        typing: Any,  # noqa: ARG001
        arena: Any,
        start: Any,
        plane: Any,
        ints: Any,
        bases_at: Any,
        sums: Any,
        columns: Any,
        weights: Any,
        first: Any,
        last: Any,
    ) -> Any:
        signature = types.void(
            arena, start, plane, ints, bases_at, sums, columns, weights, first, last
        )

        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            kinds = signature.args
            pointer = {
                at: data_of(context, builder, kinds[at], values[at]) for at in (0, 3, 5, 6, 7)
            }
            bases = []
            for v in range(vectors):
                place = builder.gep(pointer[3], [builder.add(values[4], _number(v))])
                bases.append(builder.add(values[1], builder.load(place)))
            places = [_number(v * LANES) for v in range(vectors)]
            held = [load(builder, pointer[5], at) for at in places]
            before = builder.block
            body, done = builder.append_basic_block("column"), builder.append_basic_block("done")
            builder.cbranch(builder.icmp_signed("<", values[8], values[9]), body, done)
            builder.position_at_end(body)
            column = builder.phi(INT)
            column.add_incoming(values[8], before)
            sums = [builder.phi(VECTOR) for _ in held]
            for phi, vector in zip(sums, held, strict=True):
                phi.add_incoming(vector, before)
            channel = builder.sext(builder.load(builder.gep(pointer[6], [column])), INT)
            offset = builder.mul(channel, values[2])
            factor = _splat(builder, builder.load(builder.gep(pointer[7], [column])))
            after = [
                _multiply_add(
                    builder, factor, load(builder, pointer[0], builder.add(base, offset)), phi
                )
                for base, phi in zip(bases, sums, strict=True)
            ]
            following = builder.add(column, _number(1))
            column.add_incoming(following, body)
            for phi, vector in zip(sums, after, strict=True):
                phi.add_incoming(vector, body)
            builder.cbranch(builder.icmp_signed("<", following, values[9]), body, done)
            builder.position_at_end(done)
            results = [builder.phi(VECTOR) for _ in held]
            for phi, untouched, summed in zip(results, held, after, strict=True):
                phi.add_incoming(untouched, before)
                phi.add_incoming(summed, body)
            for phi, at in zip(results, places, strict=True):
                store(builder, phi, pointer[5], at)
            return context.get_dummy_value()

        return signature, generate

    return add_row


@inline
def fill(typing: Any, sums: Any, at: Any, value: Any) -> Any:  # noqa: ARG001
    """``sums[at : at + LANES] = value``."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        pointer = data_of(context, builder, signature.args[0], values[0])
        store(builder, _splat(builder, values[2]), pointer, values[1])
        return context.get_dummy_value()

    return types.void(sums, at, types.float32), generate


@inline
def finish(
    typing: Any,  # noqa: ARG001
    arena: Any,
    sums: Any,
    at: Any,
    place: Any,
    other: Any,
    low: Any,  # noqa: ARG001
    high: Any,  # noqa: ARG001
    mask: Any,  # noqa: ARG001
) -> Any:
    """``arena[place] = clip(sums[at] + arena[other], low, high)`` in the lanes of ``mask``.

    ``other`` < 0: nothing is added. A NaN stays a NaN, as in torch.
    """

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        data = data_of(context, builder, signature.args[0], values[0])
        total = data_of(context, builder, signature.args[1], values[1])
        vector = load(builder, total, values[2])
        before = builder.block
        with builder.if_then(builder.icmp_signed(">=", values[4], _number(0))) as after:
            added = builder.fadd(vector, load(builder, data, values[4]))
            inside = builder.block
        del after
        merged = builder.phi(VECTOR)
        merged.add_incoming(vector, before)
        merged.add_incoming(added, inside)
        low, high = _splat(builder, values[5]), _splat(builder, values[6])
        clipped = builder.select(builder.fcmp_ordered("<", merged, low), low, merged)
        clipped = builder.select(builder.fcmp_ordered(">", clipped, high), high, clipped)
        store_masked(builder, clipped, data, values[3], values[7])
        return context.get_dummy_value()

    return (
        types.void(arena, sums, at, place, other, types.float32, types.float32, types.int64),
        generate,
    )


def mask_of(builder: Any, bits: Any) -> Any:
    """Bit k of a number as lane k of a mask."""
    return builder.bitcast(builder.trunc(bits, ir.IntType(LANES)), FLAGS)


def store_masked(builder: Any, vector: Any, pointer: Any, index: Any, bits: Any) -> None:
    """Store the lanes whose bits are set."""
    place = builder.bitcast(builder.gep(pointer, [index]), VECTOR.as_pointer())
    arguments = [VECTOR, VECTOR.as_pointer(), SHORT, FLAGS]
    name = f"llvm.masked.store.v{LANES}f32.p0"
    store = external(builder, name, ir.VoidType(), arguments)
    builder.call(store, [vector, place, ir.Constant(SHORT, 4), mask_of(builder, bits)])

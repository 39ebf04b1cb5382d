"""The inner kernel of 3×3 layers on planes without zeros between their rows, for numba.

Vectors of such a plane are whole rows, whole parts of a row, or several rows: what one vector reads
above it is what its neighbour reads beside or below, so that more vectors fit into the registers
at once. What lies left of the first column and right of the last is masked when it is loaded.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types

from snacs.runtime.vectors import (
    FLAGS,
    INT,
    LANES,
    SHORT,
    VECTOR,
    add_kernels,
    data_of,
    external,
    inline,
    load,
    mask_of,
)

_ZEROS = ir.Constant(VECTOR, [0.0] * LANES)
_ALIGN = ir.Constant(SHORT, 4)


def masked_load(builder: Any, address: Any, flags: Any) -> Any:
    """The lanes of ``flags``, zeros in the others; memory of the others is not touched."""
    name = f"llvm.masked.load.v{LANES}f32.p0"
    read = external(builder, name, VECTOR, [VECTOR.as_pointer(), SHORT, FLAGS, VECTOR])
    source = builder.bitcast(address, VECTOR.as_pointer())
    return builder.call(read, [source, _ALIGN, flags, _ZEROS])


def make_shared(vectors: int, step: int) -> Any:
    """Make the kernel for ``vectors`` vectors, each ``step`` rows of the plane below the last.

    As :func:`snacs.runtime.vectors.make_taps`, with two masks more at ``edges_at``: the lanes that
    have a pixel to their left, and those that have one to their right.
    """

    @inline
    def add_shared(
        typing: Any,  # noqa: ARG001
        arena: Any,
        start: Any,
        ints: Any,
        bases_at: Any,
        taps_at: Any,
        edges_at: Any,
        sums: Any,
        rows: Any,
        weights: Any,
        first: Any,
        last: Any,
    ) -> Any:
        signature = types.void(
            arena, start, ints, bases_at, taps_at, edges_at, sums, rows, weights, first, last
        )

        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            kinds = signature.args
            data, table, *rest = (
                data_of(context, builder, kinds[at], values[at]) for at in (0, 2, 6, 7, 8)
            )

            def number(at: Any, index: int) -> Any:
                place = builder.add(at, ir.Constant(INT, index))
                return builder.load(builder.gep(table, [place]))

            edges = [mask_of(builder, number(values[5], side)) for side in (0, 1)]
            loaded: dict[tuple[int, int], Any] = {}
            held = {}
            for v in range(vectors):
                base = builder.add(values[1], number(values[3], v))
                for tap in range(9):
                    y, x = divmod(tap, 3)
                    key = (v * step + y, x)
                    if key not in loaded:
                        at = builder.add(base, number(values[4], tap))
                        loaded[key] = _side(builder, data, at, x, edges)
                    held[v, tap] = loaded[key]
            pointers = dict(zip((5, 6, 7), rest, strict=True))
            add_kernels(builder, pointers, held, values[9], values[10], vectors, 9)
            return context.get_dummy_value()

        return signature, generate

    return add_shared


def _side(builder: Any, data: Any, at: Any, x: int, edges: list[Any]) -> Any:
    """A vector of the left, the middle or the right column of taps."""
    if x == 1:
        return load(builder, data, at)
    return masked_load(builder, builder.gep(data, [at]), edges[x // 2])

"""Counters that threads share, and the processor's clock, for numba."""

from __future__ import annotations

import sys
from typing import Any

from llvmlite import ir
from numba import types

from snacs.runtime.vectors import data_of, external, inline

# Windows has no sched_yield in its C library; there a waiting thread only pauses.
_YIELDS = sys.platform != "win32"


@inline
def fetch_add(typing: Any, counters: Any, at: Any, amount: Any) -> Any:  # noqa: ARG001
    """Add to a counter that other threads see, and return what it was before."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        pointer = data_of(context, builder, signature.args[0], values[0])
        place = builder.gep(pointer, [values[1]])
        return builder.atomic_rmw("add", place, values[2], "seq_cst")

    return types.int64(counters, at, types.int64), generate


@inline
def peek(typing: Any, counters: Any, at: Any) -> Any:  # noqa: ARG001
    """Read a counter that other threads change."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        pointer = data_of(context, builder, signature.args[0], values[0])
        return builder.load_atomic(builder.gep(pointer, [values[1]]), "seq_cst", 8)

    return types.int64(counters, at), generate


@inline
def pause(typing: Any, long: Any) -> Any:  # noqa: ARG001
    """Wait a moment for another thread; after ``long`` waiting, let others have the core."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:  # noqa: ARG001
        builder.fence("seq_cst")
        if _YIELDS:
            with builder.if_then(values[0]):
                builder.call(external(builder, "sched_yield", ir.IntType(32), []), [])
        return context.get_dummy_value()

    return types.void(types.boolean), generate


@inline
def ticks(typing: Any) -> Any:  # noqa: ARG001
    """The processor's clock; steps of it mean something only relative to each other."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:  # noqa: ARG001
        return builder.call(external(builder, "llvm.readcyclecounter", ir.IntType(64), []), [])

    return types.int64(), generate

"""Counters that threads share, addresses, and the processor's clock, for numba."""

from __future__ import annotations

import sys
from typing import Any

from llvmlite import ir
from numba import types

from snacs.runtime.vectors import INT, data_of, external, inline

POSIX = sys.platform != "win32"
"""Whether the C library has ``sched_yield`` and ``read``; without them a thread that waits only
pauses, and sleeps in Python."""


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
        if POSIX:
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


@inline
def address_of(typing: Any, array: Any) -> Any:  # noqa: ARG001
    """Where an array's numbers begin."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        data = data_of(context, builder, signature.args[0], values[0])
        return builder.ptrtoint(data, INT)

    return types.int64(array), generate


@inline
def pointer_to(typing: Any, address: Any) -> Any:  # noqa: ARG001
    """What ``carray`` takes, from an address."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return builder.inttoptr(values[0], context.get_value_type(signature.return_type))

    return types.voidptr(types.int64), generate


@inline
def sleep_on(typing: Any, file: Any, room: Any) -> Any:  # noqa: ARG001
    """Wait until a file has a number, and take it; ``room`` is an array of one to put it into."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        if POSIX:
            data = data_of(context, builder, signature.args[1], values[1])
            short, byte = ir.IntType(32), ir.IntType(8).as_pointer()
            read = external(builder, "read", INT, [short, byte, INT])
            number = builder.trunc(values[0], short)
            builder.call(read, [number, builder.bitcast(data, byte), ir.Constant(INT, 8)])
        return context.get_dummy_value()

    return types.void(types.int64, room), generate

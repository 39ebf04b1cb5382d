"""Threads that share the operations of a program.

Work is handed out in pieces by counters, and an operation is over when all its pieces are done: a
thread that comes late, or is held up by other programs, takes fewer pieces and nobody waits for it.
Which thread does a piece has no influence on the result. All threads are in compiled code without
the interpreter's lock; between two operations there is no return to Python.
"""

from __future__ import annotations

import atexit
import os
import queue
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from snacs.runtime import fields as f
from snacs.runtime.atomics import fetch_add, pause, peek, ticks
from snacs.runtime.compiling import compiled
from snacs.runtime.kernels import work

_LISTEN = 20_000
"""Looks at the bell before a helper goes to sleep: some tenths of a millisecond."""
_PATIENCE = 2000
"""Looks at a counter before the core is offered to others: some microseconds."""


@compiled
def alone(
    ops: Any,
    begin: int,
    end: int,
    images: int,
    ints: Any,
    rows: Any,
    weights: Any,
    arena: Any,
    sums: Any,
    first: int,
    last: int,
) -> None:
    """Blocks ``first`` to ``last`` through operations ``begin`` to ``end``, one thread."""
    for block in range(first, last):
        for index in range(begin, end):
            op = ops[index]
            work(op, 0, op[f.ITEMS], block, images, ints, rows, weights, arena, sums)


@compiled
def together(
    ops: Any,
    begin: int,
    end: int,
    images: int,
    ints: Any,
    rows: Any,
    weights: Any,
    arena: Any,
    sums: Any,
    block: int,
    state: Any,
    generation: int,
    leads: bool,
    clock: Any,
) -> None:
    """One block; all threads work on the same operation, in the same arena.

    If ``clock`` has room, the leader notes the time before each operation and after the last.
    """
    if not _enter(state, generation, leads):
        return
    timed = leads and len(clock) > 0
    for index in range(begin, end):
        if timed:
            clock[index - begin] = ticks()
        op = ops[index]
        items, grain = op[f.ITEMS], op[f.GRAIN]
        pieces = (items + grain - 1) // grain
        counter = f.COUNTERS + 16 * index
        while True:
            piece = fetch_add(state, counter, 1)
            if piece >= pieces:
                break
            until = min(items, (piece + 1) * grain)
            work(op, piece * grain, until, block, images, ints, rows, weights, arena, sums)
            fetch_add(state, counter + 8, 1)
        looks = 0
        while peek(state, counter + 8) < pieces:
            looks += 1
            pause(looks > _PATIENCE)
    if timed:
        clock[end - begin] = ticks()
    _leave(state, leads)
    if leads:
        for index in range(begin, end):
            state[f.COUNTERS + 16 * index] = 0
            state[f.COUNTERS + 16 * index + 8] = 0


@compiled
def apart(
    ops: Any,
    begin: int,
    end: int,
    images: int,
    ints: Any,
    rows: Any,
    weights: Any,
    arena: Any,
    sums: Any,
    blocks: int,
    state: Any,
    generation: int,
    leads: bool,
) -> None:
    """Each thread takes whole blocks through all operations, in an arena of its own."""
    if not _enter(state, generation, leads):
        return
    while True:
        block = fetch_add(state, f.NEXT_BLOCK, 1)
        if block >= blocks:
            break
        alone(ops, begin, end, images, ints, rows, weights, arena, sums, block, block + 1)
        fetch_add(state, f.BLOCKS_DONE, 1)
    if leads:
        looks = 0
        while peek(state, f.BLOCKS_DONE) < blocks:
            looks += 1
            pause(looks > _PATIENCE)
    _leave(state, leads)
    if leads:
        state[f.NEXT_BLOCK] = 0
        state[f.BLOCKS_DONE] = 0


@compiled
def _enter(state: Any, generation: int, leads: bool) -> bool:
    """Whether this piece of work is still going on; a helper may come when all is done."""
    if leads:
        return True
    fetch_add(state, f.ACTIVE, 1)
    if peek(state, f.GENERATION) != generation:
        fetch_add(state, f.ACTIVE, -1)
        return False
    return True


@compiled
def _leave(state: Any, leads: bool) -> None:
    """The leader ends the generation, and waits until every helper has left the counters."""
    if not leads:
        fetch_add(state, f.ACTIVE, -1)
        return
    fetch_add(state, f.GENERATION, 1)
    looks = 0
    while peek(state, f.ACTIVE) > 0:
        looks += 1
        pause(looks > _PATIENCE)


class Helpers:
    """Threads of this process that wait for a call and make it; all compiled networks share them.

    They are started when first needed, and end with the process.
    """

    def __init__(self) -> None:
        self._forget()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forget)

    def ask(self, calls: list[Callable[[], None]]) -> None:
        """Have each call made by one helper; nobody waits for them."""
        while len(self._threads) < len(calls):
            serve = (self._calls, self._bell)
            thread = threading.Thread(target=_serve, args=serve, daemon=True)
            thread.start()
            if not self._threads:
                atexit.register(self._dismiss)
            self._threads.append(thread)
        for call in calls:
            self._calls.put(call)
        self._bell[0] += 1

    def _forget(self) -> None:
        """A forked process has the object, but not the threads."""
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._bell = np.zeros(1, np.int64)

    def _dismiss(self) -> None:
        for _ in self._threads:
            self._calls.put(None)
        self._bell[0] += 1
        for thread in self._threads:
            thread.join(timeout=5)


@compiled
def _listen(bell: Any, heard: int) -> None:
    """Wait a little for the bell, without Python: who runs a network once mostly does so again."""
    for look in range(_LISTEN):
        if peek(bell, 0) != heard:
            return
        pause(look > _PATIENCE)


def _serve(calls: queue.SimpleQueue[Callable[[], None] | None], bell: Any) -> None:
    while (call := calls.get()) is not None:
        call()
        heard = int(bell[0])  # before looking: calls come first, then the bell
        if calls.empty():
            _listen(bell, heard)


HELPERS = Helpers()

"""Threads that share the operations of a program.

Work is handed out in pieces by counters, and an operation is over when all its pieces are done: a
thread that comes late, or is held up by other programs, takes fewer pieces and nobody waits for it.
Which thread does a piece has no influence on the result. All threads are in compiled code without
the interpreter's lock, and helpers stay there for a while when a call is over: the next one finds
them listening, and Python has no part in handing over the work.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import carray  # type: ignore[attr-defined]

from snacs.runtime import fields as f
from snacs.runtime.atomics import (
    POSIX,
    address_of,
    fetch_add,
    pause,
    peek,
    pointer_to,
    sleep_on,
    ticks,
)
from snacs.runtime.compiling import compiled
from snacs.runtime.kernels import work

_LISTEN = 4000
"""Looks at the bell before a helper goes to sleep: about a millisecond."""
_PATIENCE = 2000
"""Looks at a counter before the core is offered to others: some microseconds."""
_ONE = (1).to_bytes(8, sys.byteorder)
_NO_CLOCK = np.zeros(0, np.int64)


@compiled
def alone(job: Any, first: int, last: int) -> None:
    """Blocks ``first`` to ``last`` of a job, one thread."""
    for block in range(first, last):
        _block(job, 0, block)


@compiled
def lead(job: Any, team: Any, apart: bool, first: int, last: int, clock: Any) -> None:
    """Blocks ``first`` to ``last`` of a job, with all helpers that are there.

    ``apart``: each thread takes whole blocks, in an arena of its own. Else all work on the same
    operation of the one block ``first``; if ``clock`` has room, the leader notes the time before
    each operation and after the last. Helpers that work for somebody else are not waited for.
    """
    free = fetch_add(team, f.OWNER, 1) == 0
    if free:
        team[f.JOB], team[f.APART] = address_of(job), apart
        team[f.FIRST], team[f.LAST] = first, last
        fetch_add(team, f.BELL, 1)
    _share(job, 0, apart, first, last, clock)
    if free:
        fetch_add(team, f.BELL, 1)
        looks = 0
        while peek(team, f.ACTIVE) > 0:
            looks += 1
            pause(looks > _PATIENCE)
    fetch_add(team, f.OWNER, -1)
    state = carray(pointer_to(job[f.STATE]), job[f.STATE_SIZE], np.int64)
    state[:] = 0


@compiled
def help_out(team: Any, me: int, clock: Any, file: int, room: Any) -> None:
    """Listen for the bell and do what the leader says; sleep when it has been silent for long.

    The bell is odd while there is work. Whoever is active and finds the bell unchanged is waited
    for, so the job's memory is there until it has left.
    """
    heard = looks = 0
    while peek(team, f.DISMISSED) == 0:
        bell = peek(team, f.BELL)
        if bell % 2 == 1 and bell != heard:
            heard = bell
            looks = 0
            fetch_add(team, f.ACTIVE, 1)
            if peek(team, f.BELL) == bell:
                job = carray(pointer_to(team[f.JOB]), f.JOB_SIZE, np.int64)
                if me < job[f.THREADS]:
                    _share(job, me, team[f.APART] != 0, team[f.FIRST], team[f.LAST], clock)
            fetch_add(team, f.ACTIVE, -1)
        elif looks < _LISTEN:
            looks += 1
            pause(looks > _PATIENCE)
        else:
            looks = 0
            fetch_add(team, f.ASLEEP + 8 * me, 1)
            if not POSIX:
                return
            # Not in Python: who comes back there waits for the interpreter's lock, up to
            # milliseconds, while the leader makes many short calls.
            sleep_on(file, room)


@compiled
def _share(job: Any, me: int, apart: bool, first: int, last: int, clock: Any) -> None:
    state = carray(pointer_to(job[f.STATE]), job[f.STATE_SIZE], np.int64)
    if not apart:
        _together(job, me, first, state, clock)
        return
    while True:
        block = first + fetch_add(state, f.NEXT_BLOCK, 1)
        if block >= last:
            break
        _block(job, me, block)
        fetch_add(state, f.BLOCKS_DONE, 1)
    looks = 0
    while me == 0 and peek(state, f.BLOCKS_DONE) < last - first:
        looks += 1
        pause(looks > _PATIENCE)


@compiled
def _block(job: Any, me: int, block: int) -> None:
    """One block through all operations."""
    ops = carray(pointer_to(job[f.OPS]), (job[f.END], f.WIDTH), np.int64)
    ints, rows, weights = _tables(job)
    sums = carray(pointer_to(job[f.SUMS + me]), job[f.SUMS_SIZE], np.float32)
    arena = carray(pointer_to(job[f.ARENAS + me]), job[f.ARENA_SIZE], np.float32)
    for index in range(job[f.BEGIN], job[f.END]):
        op = ops[index]
        work(op, 0, op[f.ITEMS], block, job[f.IMAGES], ints, rows, weights, arena, sums)


@compiled
def _together(job: Any, me: int, block: int, state: Any, clock: Any) -> None:
    """One block through all operations, in the first arena; all threads share each operation."""
    ops = carray(pointer_to(job[f.OPS]), (job[f.END], f.WIDTH), np.int64)
    ints, rows, weights = _tables(job)
    sums = carray(pointer_to(job[f.SUMS + me]), job[f.SUMS_SIZE], np.float32)
    arena = carray(pointer_to(job[f.ARENAS]), job[f.ARENA_SIZE], np.float32)
    begin, end, images = job[f.BEGIN], job[f.END], job[f.IMAGES]
    for index in range(begin, end):
        if len(clock):
            clock[index - begin] = ticks()
        op = ops[index]
        items, grain = op[f.ITEMS], op[f.GRAIN]
        pieces = (items + grain - 1) // grain
        counter = f.COUNTERS + 16 * (index - begin)
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
    if len(clock):
        clock[end - begin] = ticks()


@compiled
def _tables(job: Any) -> Any:
    return (
        carray(pointer_to(job[f.INTS]), job[f.INTS_SIZE], np.int64),
        carray(pointer_to(job[f.ROWS_OF]), job[f.ROWS_SIZE], np.int32),
        carray(pointer_to(job[f.WEIGHTS]), job[f.WEIGHTS_SIZE], np.float32),
    )


class Helpers:
    """Threads of this process that help whoever leads; all compiled networks share them.

    They are started when first needed, and end with the process.
    """

    def __init__(self) -> None:
        self._forget()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forget)

    def team(self, threads: int) -> npt.NDArray[np.int64]:
        """What to call :func:`lead` with; helpers that sleep are woken."""
        while len(self._threads) < threads - 1:
            self._start()
        for me in range(1, threads):
            if self._team[f.ASLEEP + 8 * me]:
                self._team[f.ASLEEP + 8 * me] = 0
                os.write(self._files[me - 1][1], _ONE)
        return self._team

    def _start(self) -> None:
        if not self._threads:
            atexit.register(self._dismiss)
        self._files.append(_waking())
        serve = (self._team, len(self._files), self._files[-1][0])
        self._threads.append(threading.Thread(target=_serve, args=serve, daemon=True))
        self._threads[-1].start()

    def _forget(self) -> None:
        """A forked process has the object, but not the threads."""
        self._files: list[tuple[int, int]] = []
        self._threads: list[threading.Thread] = []
        self._team = np.zeros(f.TEAM_SIZE, np.int64)

    def _dismiss(self) -> None:
        self._team[f.DISMISSED] = 1
        for _, end in self._files:
            os.write(end, _ONE)
        for thread in self._threads:
            thread.join(timeout=5)


def _waking() -> tuple[int, int]:
    """A file to sleep on and one to wake the sleeper with.

    Whoever writes to a pipe is expected to wait for an answer, and Linux wakes the reader on the
    writer's own core, where it would stay for milliseconds; an event's reader wakes on a free one.
    """
    if hasattr(os, "eventfd"):
        event = os.eventfd(0)
        return event, event
    return os.pipe()


def _serve(team: npt.NDArray[np.int64], me: int, file: int) -> None:
    room = np.zeros(1, np.int64)
    while True:
        help_out(team, me, _NO_CLOCK, file, room)
        if team[f.DISMISSED]:
            return
        os.read(file, 8)


HELPERS = Helpers()

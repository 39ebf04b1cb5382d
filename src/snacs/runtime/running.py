"""A program on a batch of fixed size: its memory, its threads, its exchange with torch."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, fx

from snacs.runtime import fields as f
from snacs.runtime.program import Program
from snacs.runtime.steps import Lowered, Segment, TorchStep
from snacs.runtime.threads import HELPERS, alone, lead

Floats = npt.NDArray[np.float32]
Known = dict[fx.Node | str, Any]
_NO_CLOCK = np.zeros(0, np.int64)


def aligned(count: int) -> Floats:
    """Zeros that begin at a cache line."""
    room = np.zeros(count + 16, np.float32)
    skip = (-(room.ctypes.data // 4)) % 16
    return room[skip : skip + count]


class Runner:
    """Runs a lowered network on batches of ``images``; all memory is taken here, once."""

    def __init__(
        self,
        module: fx.GraphModule,
        lowered: Lowered,
        program: Program,
        *,
        images: int,
        threads: int,
    ) -> None:
        self.module, self.lowered, self.program = module, lowered, program
        threads = min(threads, f.MOST_THREADS)
        self.images, self.threads = images, threads
        self.blocks = -(-images // program.unit)
        self.ops = program.ops.copy()
        spaces = threads if self.blocks >= threads else 1
        self._arenas = [aligned(program.arena_floats) for _ in range(spaces)]
        self._sums = [aligned(program.sums_floats) for _ in range(threads)]
        most = max((end - begin for begin, end in program.ranges), default=0)
        self._state = np.zeros(f.COUNTERS + 16 * (most + 1), np.int64)
        self._exchanges = program.exchanges()
        nodes = module.graph.nodes
        views = lowered.views
        self._inputs = [
            (node, views[node][0].name if node in views else "")
            for node in nodes
            if node.op == "placeholder"
        ]
        self._output: Any = next(node for node in nodes if node.op == "output").args[0]
        self._slots: dict[str, Tensor] = {}
        direct = self._direct()
        for slot in program.slots:
            if slot.name not in direct:
                self._slots[slot.name] = torch.zeros(images, slot.channels, slot.height, slot.width)
                self._point(slot.name, self._slots[slot.name])
        self._returned = self._written(direct)
        self._jobs = self._prepare()
        whole = len(lowered.parts) == 1 and len(program.ranges) == 1 and len(self._inputs) == 1
        self._straight = whole and self._returned is not None

    def _direct(self) -> set[str]:
        """Values that go straight from the caller's tensor, or into the one that is returned."""
        views = self.lowered.views
        found = {name for _, name in self._inputs if name}
        if not isinstance(self._output, fx.Node) or self._output not in views:
            return found
        name = views[self._output][0].name
        readers = [part.node for part in self.lowered.parts if isinstance(part, TorchStep)]
        inside = {
            value.name
            for part in self.lowered.parts
            if isinstance(part, Segment)
            for value in part.inputs
        }
        inside |= {views[n][0].name for r in readers for n in r.all_input_nodes if n in views}
        inside |= {views[reader][0].name for reader in readers if reader in views}
        return found if name in inside else found | {name}

    def _written(self, direct: set[str]) -> tuple[str, tuple[int, ...]] | None:
        """Name and shape of the tensor to return, if our kernels write all of it."""
        if not isinstance(self._output, fx.Node) or self._output not in self.lowered.views:
            return None
        value, shape = self.lowered.views[self._output]
        if value.name not in direct or value.name in {name for _, name in self._inputs}:
            return None
        return value.name, (self.images, *shape)

    def _point(self, name: str, tensor: Tensor) -> None:
        """Have the operations that exchange a value use this tensor."""
        for index in self._exchanges.get(name, ()):
            self.ops[index, f.IO] = tensor.data_ptr()

    @property
    def bytes(self) -> int:
        """Memory for tensors, tables and weights."""
        program = self.program
        arrays: list[npt.NDArray[Any]] = [*self._arenas, *self._sums, self.ops]
        arrays += [program.ints, program.rows, program.floats]
        slots = sum(slot.numel() * 4 for slot in self._slots.values())
        return slots + sum(int(array.nbytes) for array in arrays)

    def __call__(self, x: Tensor) -> Any:
        x = x.contiguous()
        return self._through(x) if self._straight else self._by_parts(x)

    def _through(self, x: Tensor) -> Tensor:
        """The way of networks that our kernels run whole; small ones are over in microseconds."""
        name, shape = self._returned or ("", ())
        result = torch.empty(shape)
        self._point(self._inputs[0][1], x)
        self._point(name, result)
        self._segment(0)
        return result

    def _by_parts(self, x: Tensor) -> Any:
        known: Known = {}  # by node, and by the name of the value that a node is
        for node, name in self._inputs:
            # Other arguments have defaults: there is one input.
            known[node] = x if not node.args else node.args[0]
            if name:
                known[name] = x
                self._point(name, x)
        result = None
        if self._returned is not None:
            name, shape = self._returned
            result = torch.empty(shape)
            self._point(name, result)
        segment = 0
        for part in self.lowered.parts:
            if isinstance(part, Segment):
                self._segment(segment)
                segment += 1
            else:
                self._torch(part, known)
        if result is not None:
            return result
        return fx.node.map_arg(self._output, lambda node: self._copied(known, node))

    def profile(self, times: int = 4) -> npt.NDArray[np.float64]:
        """Seconds of each operation for the whole batch, all threads working together.

        Best of ``times``, on zeros.
        """
        best = np.full(len(self.ops), np.inf)
        scratch = [
            torch.zeros(self.images, slot.channels, slot.height, slot.width)
            for slot in self.program.slots
        ]
        for slot, tensor in zip(self.program.slots, scratch, strict=True):
            if slot.name not in self._slots:  # the caller's tensors are not ours any more
                self._point(slot.name, tensor)
        for segment, (begin, end) in enumerate(self.program.ranges):
            clock = np.zeros(end - begin + 1, np.int64)
            for _ in range(times):
                start = time.perf_counter()
                lead(self._jobs[segment], HELPERS.team(self.threads), False, 0, 1, clock)
                spent = time.perf_counter() - start
                steps = np.diff(clock) / max(1, clock[-1] - clock[0]) * spent
                best[begin:end] = np.minimum(best[begin:end], steps)
        return best * self.blocks

    def _give(self, known: Known, node: fx.Node, value: Any) -> None:
        """Note what a node is, and put it where our kernels read it, if they do."""
        known[node] = value
        view = self.lowered.views.get(node)
        if view is not None:
            known[view[0].name] = value
        if view is not None and view[0].name in self._slots:
            slot = self._slots[view[0].name]
            slot.copy_(value.reshape(slot.shape))

    def _take(self, known: Known, node: fx.Node) -> Any:
        if node in known:
            return known[node]
        value, shape = self.lowered.views[node]
        found = known[value.name] if value.name in known else self._slots[value.name]
        return found.reshape(self.images, *shape)

    def _copied(self, known: Known, node: fx.Node) -> Any:
        found = self._take(known, node)
        # Slots are written again by the next call; the caller's tensor must not be.
        return found if node in known else found.clone()

    def _torch(self, part: TorchStep, known: Known) -> None:
        node = part.node

        def take(argument: fx.Node) -> Any:
            return self._take(known, argument)

        args = fx.node.map_arg(node.args, take)
        kwargs = fx.node.map_arg(node.kwargs, take)
        if node.op == "call_module":
            found = self.module.get_submodule(node.target)(*args, **kwargs)
        elif node.op == "call_method":
            found = getattr(args[0], node.target)(*args[1:], **kwargs)
        elif node.op == "get_attr":
            found = self.module
            for name in node.target.split("."):
                found = getattr(found, name)
        else:
            found = node.target(*args, **kwargs)
        self._give(known, node, found)

    def _segment(self, index: int) -> None:
        job = self._jobs[index]
        if self.threads == 1:
            alone(job, 0, self.blocks)
            return
        # As many rounds as every thread can do by itself; what is left over is shared.
        team = HELPERS.team(self.threads)
        whole = self.blocks - self.blocks % self.threads
        if whole:
            lead(job, team, True, 0, whole, _NO_CLOCK)
        for block in range(whole, self.blocks):
            lead(job, team, False, block, block + 1, _NO_CLOCK)

    def _prepare(self) -> list[npt.NDArray[np.int64]]:
        """Each segment's job; the memory that it speaks of is kept by this object."""
        program, jobs = self.program, []
        for begin, end in program.ranges:
            job = np.zeros(f.JOB_SIZE, np.int64)
            job[f.BEGIN], job[f.END] = begin, end
            job[f.IMAGES], job[f.THREADS] = self.images, self.threads
            for field, array in (
                (f.INTS, program.ints),
                (f.ROWS_OF, program.rows),
                (f.WEIGHTS, program.floats),
                (f.STATE, self._state),
            ):
                job[field], job[field + 1] = array.ctypes.data, len(array)
            job[f.OPS] = self.ops.ctypes.data
            job[f.ARENA_SIZE] = program.arena_floats
            job[f.SUMS_SIZE] = program.sums_floats
            for first, arrays in ((f.ARENAS, self._arenas), (f.SUMS, self._sums)):
                job[first : first + len(arrays)] = [array.ctypes.data for array in arrays]
            jobs.append(job)
        return jobs

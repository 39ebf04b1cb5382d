"""From steps to a program: places for tensors, tables of kernels, one row per operation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from snacs.runtime import fields as f
from snacs.runtime.convolving import conv_row, reach, wrapping
from snacs.runtime.layout import Arena, Geometry, wraps_well
from snacs.runtime.steps import Conv, Copy, Lowered, Mean, Pool, Segment, Step, Value
from snacs.runtime.tables import Tables
from snacs.runtime.vectors import LANES

_PIECE = 3000.0
"""Nanoseconds that a piece of work should take at least, so that handing out costs little."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Program:
    """A network in one layout, ready to run on any batch.

    Attributes
    ----------
    unit : images per block, 1 or as many as a vector has lanes
    ops : (operations, fields.WIDTH)
    layers : the layer that each operation belongs to
    ranges : first and last operation of each segment
    slots : tensors that are exchanged with torch, in the order of their places
    """

    unit: int
    ops: npt.NDArray[np.int64]
    ints: npt.NDArray[np.int64]
    rows: npt.NDArray[np.int32]
    floats: npt.NDArray[np.float32]
    layers: tuple[str, ...]
    ranges: tuple[tuple[int, int], ...]
    slots: tuple[Value, ...]
    arena_floats: int
    sums_floats: int

    def exchanges(self) -> dict[str, list[int]]:
        """Operations that read or write each of ``slots``; IO holds its number in the table."""
        found: dict[str, list[int]] = {slot.name: [] for slot in self.slots}
        for index, op in enumerate(self.ops):
            if op[f.KIND] in (f.PACK, f.UNPACK):
                found[self.slots[op[f.IO]].name].append(index)
        return found


def build(lowered: Lowered, *, images: bool, threads: int = 1) -> Program:
    """Lay a network out; ``images`` innermost, or pixels. Any number of ``threads`` can run it."""
    return _Builder(lowered, LANES if images else 1, threads).build()


class _Builder:
    def __init__(self, lowered: Lowered, unit: int, threads: int) -> None:
        self.lowered, self.unit, self.threads = lowered, unit, threads
        self.tables, self.arena = Tables(), Arena()
        self.ops: list[npt.NDArray[np.int64]] = []
        self.layers: list[str] = []
        self.places: dict[str, int] = {}
        self.slots: dict[str, tuple[int, Value]] = {}
        self.sums = 64 * LANES
        self.pads: dict[tuple[int, int], int] = {}
        self.padded: set[tuple[int, int]] = set()
        for step in lowered.steps:
            if isinstance(step, Conv) and not self.phased(step):
                key = (step.x.height, step.x.width)
                self.pads[key] = max(self.pads.get(key, 0), reach(step))
                if not wrapping(step):
                    self.padded.add(key)

    def phased(self, step: Conv) -> bool:
        """Vectors of pixels cannot skip pixels: a strided layer reads planes split by phase."""
        return self.unit == 1 and step.stride != (1, 1)

    def build(self) -> Program:
        ranges = []
        for part in self.lowered.parts:
            if isinstance(part, Segment):
                begin = len(self.ops)
                self.segment(part)
                ranges.append((begin, len(self.ops)))
        ints, rows, floats = self.tables.arrays()
        width = (0, f.WIDTH)
        return Program(
            unit=self.unit,
            ops=np.stack(self.ops) if self.ops else np.zeros(width, np.int64),
            ints=ints,
            rows=rows,
            floats=floats,
            layers=tuple(self.layers),
            ranges=tuple(ranges),
            slots=tuple(value for _, value in self.slots.values()),
            arena_floats=self.arena.floats,
            sums_floats=self.sums,
        )

    def segment(self, part: Segment) -> None:
        last = {}
        for index, step in enumerate(part.steps):
            for value in (*step.reads, step.out):
                last[value.name] = index
        for value in part.outputs:
            last[value.name] = len(part.steps)
        for value in part.inputs:
            self.take(value)
            self.exchange(f.PACK, value)
        for index, step in enumerate(part.steps):
            if step.out.name not in self.places:
                self.take(step.out)
            self.emit(step)
            for name in [name for name in self.places if last.get(name) == index]:
                self.give_back(name)
        for value in part.outputs:
            self.exchange(f.UNPACK, value)
        for name in list(self.places):
            self.give_back(name)

    def geometry(self, value: Value) -> Geometry:
        size = (value.height, value.width)
        pad = self.pads.get(size, 0)
        if self.unit == 1 and pad and size not in self.padded and wraps_well(*size):
            return Geometry.wrapped(*size, pad)
        return Geometry.of(value.height, value.width, pad, unit=self.unit)

    def take(self, value: Value) -> None:
        self.places[value.name] = self.arena.take(value.name, self.geometry(value), value.channels)

    def give_back(self, name: str) -> None:
        del self.places[name]
        self.arena.give_back(name)

    def add(self, layer: str, row: dict[int, Any], *, cost: float) -> None:
        """Append an operation whose items take about ``cost`` nanoseconds each."""
        op = np.zeros(f.WIDTH, np.int64)
        row = {f.OTHER: -1, f.UNIT: self.unit} | row
        for field, value in row.items():
            op[field] = value
        # Pieces of some microseconds, but enough of them for several threads.
        grain = min(int(_PIECE / max(cost, 1.0)), int(op[f.ITEMS]) // 8)
        op[f.GRAIN] = max(1, grain)
        self.ops.append(op)
        self.layers.append(layer)

    def common(self, step: Step) -> dict[int, Any]:
        """What the rows of all kinds have."""
        x, out = self.geometry(step.x), self.geometry(step.out)
        found = {
            f.X: self.places[step.x.name],
            f.X_PLANE: x.plane,
            f.OUT: self.places[step.out.name],
            f.OUT_PLANE: out.plane,
            f.LIMITS_AT: self.tables.add_floats([step.low, step.high]),
            f.CHANNELS: step.out.channels,
        }
        if step.other is not None:
            found |= {f.OTHER: self.places[step.other.name], f.OTHER_PLANE: out.plane}
        return found

    def frame(self, x: Geometry, out: Geometry) -> dict[int, Any]:
        """Where rows of pixels begin, for kinds that go row by row."""
        return {
            f.X_ORIGIN: x.origin,
            f.OUT_ORIGIN: out.origin,
            f.X_ROW: x.row * x.unit,
            f.OUT_ROW: out.row * out.unit,
            f.HEIGHT: out.height,
            f.COLUMNS: out.width,
        }

    def emit(self, step: Step) -> None:
        if isinstance(step, Conv):
            self.convolution(step)
        elif isinstance(step, Copy):
            self.copy(step)
        elif isinstance(step, Pool):
            self.pool(step)
        else:
            self.mean(step)

    def convolution(self, step: Conv) -> None:
        common, x = self.common(step), self.geometry(step.x)
        out = self.geometry(step.out)
        phases: dict[tuple[int, int], int] | None = None
        if self.phased(step):
            common[f.X], x, phases = self.split(step, out)
            common[f.X_PLANE] = x.plane
        made = conv_row(step, x, out, phases=phases, tables=self.tables, threads=self.threads)
        self.sums = max(self.sums, made.sums)
        self.add(step.layer, common | made.fields, cost=made.cost)
        if phases is not None:
            self.arena.give_back(f"{step.out.name}/phases")

    def split(self, step: Conv, out: Geometry) -> tuple[int, Geometry, dict[tuple[int, int], int]]:
        """Copy each phase of a strided layer's input that any tap reads into planes of its own."""
        (sy, sx), (py, px), (dy, dx) = step.stride, step.padding, step.dilation
        rows = [ky * dy - py for ky in range(step.weight.shape[2])]
        columns = [kx * dx - px for kx in range(step.weight.shape[3])]
        wanted = sorted({(r % sy, c % sx) for r in rows for c in columns})
        x = self.geometry(step.x)
        height, width = -(-x.height // sy), -(-x.width // sx)
        pad = max(
            *(abs(r // sy) for r in rows),
            *(abs(c // sx) for c in columns),
            out.height - height + max(rows) // sy,
            out.width - width + max(columns) // sx,
        )
        split = Geometry(height, width, pad, 1, max(out.row, width + pad))
        place = self.arena.take(f"{step.out.name}/phases", split, step.x.channels * len(wanted))
        limits = self.tables.add_floats([-np.inf, np.inf])
        for index, (phase_y, phase_x) in enumerate(wanted):
            row = self.frame(x, split) | {
                f.KIND: f.COPY,
                f.ITEMS: step.x.channels,
                f.X: self.places[step.x.name],
                f.X_PLANE: x.plane,
                f.OUT: place + index * step.x.channels * split.plane,
                f.OUT_PLANE: split.plane,
                f.LIMITS_AT: limits,
                f.CHANNELS: step.x.channels,
                f.SOURCES: step.x.channels,
                f.STRIDE: sx,
                f.X_ORIGIN: x.origin + x.offset(phase_y, phase_x),
                f.X_ROW: x.row * sy,
                f.HEIGHT: -(-(x.height - phase_y) // sy),
                f.COLUMNS: -(-(x.width - phase_x) // sx),
                f.SCALE_AT: -1,
            }
            self.add(step.layer, row, cost=height * width * 0.5)
        return place, split, {phase: index for index, phase in enumerate(wanted)}

    def copy(self, step: Copy) -> None:
        x, out = self.geometry(step.x), self.geometry(step.out)
        channels = step.out.channels if step.pad else step.x.channels
        row = self.common(step) | self.frame(x, out)
        row |= {
            f.KIND: f.COPY,
            f.ITEMS: channels,
            f.SHIFT: step.first if step.pad else 0,
            f.SOURCES: step.x.channels,
            f.STRIDE: step.stride,
            f.X_ROW: x.row * x.unit * step.stride,
            f.SCALE_AT: -1,
        }
        if not step.pad:
            row[f.OUT] += step.first * out.plane
        if step.scale is not None and step.shift is not None:
            row[f.SCALE_AT] = self.tables.add_floats(step.scale)
            row[f.SHIFT_AT] = self.tables.add_floats(step.shift)
        self.add(step.layer, row, cost=0.2 * out.height * out.width * self.unit)

    def pool(self, step: Pool) -> None:
        x, out = self.geometry(step.x), self.geometry(step.out)
        row = self.common(step) | self.frame(x, out)
        row |= {f.KIND: f.POOL, f.ITEMS: step.out.channels, f.IN_H: x.height, f.IN_W: x.width}
        row |= {f.KERNEL_H: step.kernel[0], f.KERNEL_W: step.kernel[1]}
        row |= {f.STEP_H: step.stride[0], f.STEP_W: step.stride[1]}
        row |= {f.PAD_H: step.padding[0], f.PAD_W: step.padding[1]}
        if step.average:
            row[f.AVERAGE] = 2 if step.count_padding else 1
        pixels = out.height * out.width * step.kernel[0] * step.kernel[1]
        self.add(step.layer, row, cost=0.2 * pixels * self.unit)

    def mean(self, step: Step) -> None:
        if not isinstance(step, Mean):
            raise TypeError(f"There is no operation for {type(step).__name__}.")
        x, out = self.geometry(step.x), self.geometry(step.out)
        row = self.common(step) | self.frame(x, out)
        row |= {f.KIND: f.MEAN, f.ITEMS: step.out.channels}
        row |= {f.HEIGHT: x.height, f.COLUMNS: x.width}
        self.add(step.layer, row, cost=1.0 * x.height * x.width)

    def exchange(self, kind: int, value: Value) -> None:
        """A tensor from torch, or to it."""
        geometry = self.geometry(value)
        slot, _ = self.slots.setdefault(value.name, (len(self.slots), value))
        row = self.frame(geometry, geometry) | {
            f.KIND: kind,
            f.ITEMS: value.channels,
            f.X: self.places[value.name],
            f.X_PLANE: geometry.plane,
            f.OUT: self.places[value.name],
            f.OUT_PLANE: geometry.plane,
            f.CHANNELS: value.channels,
            f.IO: slot,
        }
        self.add("", row, cost=0.5 * value.height * value.width * self.unit)

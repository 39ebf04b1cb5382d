"""Compiled operations that go row by row: copies, pooling, means."""

from __future__ import annotations

from typing import Any

import numpy as np

from snacs.runtime import fields as f
from snacs.runtime.compiling import compiled
from snacs.runtime.vectors import LANES


@compiled
def copy(op: Any, first: int, last: int, weights: Any, arena: Any) -> None:
    """``out = clip(scale · x + shift + other)``, with channels shifted and pixels skipped."""
    low, high = weights[op[f.LIMITS_AT]], weights[op[f.LIMITS_AT] + 1]
    unit, stride, width = op[f.UNIT], op[f.STRIDE], op[f.COLUMNS]
    clips = low > -np.inf or high < np.inf
    for channel in range(first, last):
        source = channel - op[f.SHIFT]
        reads = 0 <= source < op[f.SOURCES]
        scale, shift = np.float32(1), np.float32(0)
        if op[f.SCALE_AT] >= 0:
            scale, shift = weights[op[f.SCALE_AT] + channel], weights[op[f.SHIFT_AT] + channel]
        for y in range(op[f.HEIGHT]):
            place = op[f.OUT] + channel * op[f.OUT_PLANE] + op[f.OUT_ORIGIN] + y * op[f.OUT_ROW]
            out = arena[place : place + width * unit]
            if reads:
                at = op[f.X] + source * op[f.X_PLANE] + op[f.X_ORIGIN] + y * op[f.X_ROW]
                _copy_row(arena[at:], out, width, unit, stride, scale, shift)
            else:
                out[:] = shift
            if op[f.OTHER] >= 0:
                at = op[f.OTHER] + channel * op[f.OTHER_PLANE] + op[f.OUT_ORIGIN]
                other = arena[at + y * op[f.OUT_ROW] :]
                for i in range(width * unit):
                    out[i] += other[i]
            if clips:
                for i in range(width * unit):
                    value = low if out[i] < low else out[i]
                    out[i] = high if value > high else value


@compiled
def _copy_row(
    x: Any, out: Any, width: int, unit: int, stride: int, scale: float, shift: float
) -> None:
    if stride == 1:
        for i in range(width * unit):
            out[i] = x[i] * scale + shift
    elif unit == 1 and stride == 2:  # known to the compiler, so that it can use shuffles
        for i in range(width):
            out[i] = x[2 * i] * scale + shift
    elif unit == 1:
        for i in range(width):
            out[i] = x[i * stride] * scale + shift
    else:
        for i in range(width):
            for lane in range(unit):
                out[i * unit + lane] = x[i * stride * unit + lane] * scale + shift


@compiled
def pool(op: Any, first: int, last: int, weights: Any, arena: Any) -> None:
    low, high = weights[op[f.LIMITS_AT]], weights[op[f.LIMITS_AT] + 1]
    unit, width, average = op[f.UNIT], op[f.COLUMNS], op[f.AVERAGE]
    for channel in range(first, last):
        for y in range(op[f.HEIGHT]):
            place = op[f.OUT] + channel * op[f.OUT_PLANE] + op[f.OUT_ORIGIN] + y * op[f.OUT_ROW]
            out = arena[place : place + width * unit]
            out[:] = np.float32(0) if average else np.float32(-np.inf)
            valid = 0
            for ky in range(op[f.KERNEL_H]):
                row = y * op[f.STEP_H] + ky - op[f.PAD_H]
                if not 0 <= row < op[f.IN_H]:
                    continue
                valid += 1
                at = op[f.X] + channel * op[f.X_PLANE] + op[f.X_ORIGIN] + row * op[f.X_ROW]
                for kx in range(op[f.KERNEL_W]):
                    _pool_row(op, arena[at:], out, kx - op[f.PAD_W], width, unit, average)
            if average:
                _divide(op, out, valid, width, unit)
            for i in range(width * unit):
                value = low if out[i] < low else out[i]
                out[i] = high if value > high else value


@compiled
def _pool_row(op: Any, row: Any, out: Any, shift: int, width: int, unit: int, average: int) -> None:
    """One row of one tap: output x reads input x · step + shift, where there is one."""
    step = op[f.STEP_W]
    begin = 0 if shift >= 0 else (step - 1 - shift) // step
    end = min(width, (op[f.IN_W] - 1 - shift) // step + 1)
    if end <= begin:
        return
    x = row[(begin * step + shift) * unit :]
    target = out[begin * unit : end * unit]
    if unit > 1:
        for i in range(end - begin):
            for lane in range(unit):
                value = x[i * step * unit + lane]
                old = target[i * unit + lane]
                target[i * unit + lane] = old + value if average else max(old, value)
    elif average:
        for i in range(end - begin):
            target[i] += x[i * step]
    elif step == 2:
        for i in range(end - begin):
            target[i] = max(target[i], x[2 * i])
    else:
        for i in range(end - begin):
            target[i] = max(target[i], x[i * step])


@compiled
def _divide(op: Any, out: Any, valid: int, width: int, unit: int) -> None:
    for x in range(width):
        start = x * op[f.STEP_W] - op[f.PAD_W]
        inside = min(start + op[f.KERNEL_W], op[f.IN_W]) - max(start, 0)
        count = op[f.KERNEL_H] * op[f.KERNEL_W] if op[f.AVERAGE] == 2 else valid * inside
        for lane in range(unit):
            out[x * unit + lane] /= np.float32(count)


@compiled
def mean(op: Any, first: int, last: int, arena: Any, sums: Any) -> None:
    unit, width = op[f.UNIT], op[f.COLUMNS]
    total = sums[:LANES]
    for channel in range(first, last):
        total[:] = 0
        for y in range(op[f.HEIGHT]):
            at = op[f.X] + channel * op[f.X_PLANE] + op[f.X_ORIGIN] + y * op[f.X_ROW]
            row = arena[at : at + width * unit]
            for x in range(width):
                for lane in range(unit):
                    total[lane] += row[x * unit + lane]
        place = op[f.OUT] + channel * op[f.OUT_PLANE] + op[f.OUT_ORIGIN]
        for lane in range(unit):
            arena[place + lane] = total[lane] / np.float32(width * op[f.HEIGHT])

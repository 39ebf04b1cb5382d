"""Steps that are done in one: BatchNorm into weights; sums and activations where they arise."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np

from snacs.runtime.steps import Conv, Copy, Mean, Step, TorchStep, Value

Item = Step | TorchStep


def fuse(items: list[Item], outside: set[str]) -> list[Item]:
    """Merge each step into the one that makes its input, where nobody else reads that.

    ``outside`` names values that must exist, because torch reads them.
    """
    found = list(items)
    at = 0
    while at < len(found):
        merged = _merge(found, at, outside)
        if merged is None:
            at += 1
            continue
        producer, step = merged
        found[at] = step
        del found[producer]
        at = max(0, at - 1)
    return found


def _merge(items: list[Item], at: int, outside: set[str]) -> tuple[int, Step] | None:
    """A step that does item ``at`` and the one that makes its input, and where that stood."""
    taker = items[at]
    if not isinstance(taker, Copy) or taker.stride != 1 or taker.first or not taker.pad:
        return None
    if taker.x.channels != taker.out.channels:
        return None
    reads = Counter(v.name for item in items if isinstance(item, Step) for v in item.reads)
    candidates = [taker.x] if taker.other is None else [taker.other, taker.x]
    # The later of two producers, so that the other summand is there when it runs.
    for index in range(at - 1, -1, -1):
        maker = items[index]
        if not isinstance(maker, Step) or maker.out not in candidates:
            continue
        alone = reads[maker.out.name] == 1 and maker.out.name not in outside
        written_once = sum(isinstance(item, Step) and item.out is maker.out for item in items) == 1
        if alone and written_once:
            other = taker.other if maker.out is taker.x else taker.x
            step = _together(maker, taker, other)
            if step is not None:
                return index, step
    return None


def _together(maker: Step, taker: Copy, other: Value | None) -> Step | None:
    clipped = maker.low > -np.inf or maker.high < np.inf
    step = maker
    if taker.scale is not None and taker.shift is not None:
        if clipped or maker.other is not None or not isinstance(maker, Conv | Copy):
            return None
        if taker.other is not None and maker.out is not taker.x:
            return None
        step = _scaled(maker, taker)
    if other is not None:
        if clipped or maker.other is not None or not isinstance(maker, Conv | Copy):
            return None
        step = replace(step, other=other)
    if isinstance(maker, Mean):
        return None
    low = min(max(step.low, taker.low), taker.high)
    high = min(max(step.high, taker.low), taker.high)
    return replace(step, out=taker.out, low=low, high=high)


def _scaled(maker: Step, taker: Copy) -> Step:
    scale = np.asarray(taker.scale, np.float64)
    shift = np.asarray(taker.shift, np.float64)
    if isinstance(maker, Conv):
        return replace(
            maker,
            weight=(maker.weight * scale[:, None, None, None]).astype(np.float32),
            bias=(maker.bias * scale + shift).astype(np.float32),
        )
    if not isinstance(maker, Copy):
        raise TypeError(f"{type(maker).__name__} takes no scale.")
    before = np.ones(len(scale)) if maker.scale is None else maker.scale
    offset = np.zeros(len(scale)) if maker.shift is None else maker.shift
    return replace(
        maker,
        scale=(before * scale).astype(np.float32),
        shift=(offset * scale + shift).astype(np.float32),
    )

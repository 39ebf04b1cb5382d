"""Batches that are held all at one time: how many, and within how much memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from snacs.errors import InputError
from snacs.network.batches import Forward, describe, move, run, size_of, tensors_of

# Every batch is held in two threads of its own; many small batches are joined to this many.
MOST_BATCHES = 64
# Bytes of activations that may be held at one time, for all images and both networks.
MEMORY = 4 << 30


def collect(images: Iterable[Any], model: nn.Module) -> list[Any]:
    """All batches on the model's device; many small ones are joined."""
    batches = [move(batch, model) for batch in images]
    if not batches:
        raise InputError("There are no calibration images: the iterable gave no batch.")
    if len(batches) > MOST_BATCHES:
        step = -(-len(batches) // MOST_BATCHES)
        batches = [_join(batches[i : i + step]) for i in range(0, len(batches), step)]
    return batches


def _join(batches: list[Any]) -> Any:
    """Several batches of one kind as one."""
    first = batches[0]
    try:
        if isinstance(first, Tensor):
            return torch.cat(batches)
        if isinstance(first, Mapping):
            return {key: _join([batch[key] for batch in batches]) for key in first}
        if isinstance(first, tuple | list):
            return [_join(list(parts)) for parts in zip(*batches, strict=True)]
    except (RuntimeError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"More than {MOST_BATCHES} batches must be joined, which failed: {error}. The first "
            f"is {describe(first)}. Use larger batches of one shape."
        ) from error
    return first


def fit(
    reference: nn.Module, batches: list[Any], forward: Forward | None, notes: list[str]
) -> list[Any]:
    """As many batches as may be held at one time."""
    widest = 0

    def look(_: nn.Module, inputs: Any, output: Any) -> None:
        nonlocal widest
        held = sum(t.numel() * t.element_size() for t in tensors_of([*inputs, output]))
        widest = max(widest, held)

    leaves = [m for m in reference.modules() if not list(m.children())]
    handles = [m.register_forward_hook(look) for m in leaves]
    try:
        run(reference, batches[0], forward)
    finally:
        for handle in handles:
            handle.remove()
    # Held at a stop: a module's input and output or the residual stream, in both networks.
    each = 3 * widest / size_of(batches[0])
    total = 0
    for count, batch in enumerate(batches):
        total += size_of(batch)
        if count and total * each > MEMORY:
            notes.append(
                f"Only {total - size_of(batch)} calibration images were used: more activations "
                f"would take over {MEMORY >> 30} GB."
            )
            return batches[:count]
    return batches

"""Who feeds whom: one real forward pass of any ``nn.Module``, watched function by function.

The pass runs under a :class:`torch.overrides.TorchFunctionMode`, so that functional code is seen as
well as modules, and nothing has to be symbolically traceable. Each tensor is tagged with the
filters that reach it (:mod:`snacs.network.sources`); convolution and linear modules start new
sources; every other function hands them on by a rule (:mod:`snacs.network.rules`) or blends them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from snacs.network.batches import Forward, evaluating, move, run, size_of, tensors_of
from snacs.network.seen import (
    KINDS,
    NORMS,
    Seen,
    is_addition,
    kind_of,
    merged,
    weight_shape,
)
from snacs.network.sources import INPUT, NOTHING, Origins, layers_in, segments, uniform
from snacs.network.watch import Watcher
from snacs.values import Norm, Segment, Sum

__all__ = [
    "KINDS",
    "NORMS",
    "Seen",
    "Trace",
    "is_addition",
    "kind_of",
    "trace",
    "weight_shape",
]


@dataclass(frozen=True, eq=False)
class Trace:
    """Everything one pass revealed; :mod:`snacs.network.layers` decides what follows from it."""

    layers: tuple[Seen, ...]
    norms: tuple[Norm, ...]
    sums: tuple[Sum, ...]
    rectified: tuple[str, ...]
    """Layers whose output, through their own norm if they have one, only one ReLU reads."""
    outputs: tuple[Segment, ...]
    heads: tuple[frozenset[str], ...]
    """For every output tensor the layers that reach it without passing another one."""
    called: frozenset[str]
    borrowed: frozenset[str]
    """Layers whose weight was used outside their own forward."""
    images: int


def trace(model: nn.Module, batch: Any, *, forward: Forward | None = None) -> Trace:
    """Watch one forward pass in eval mode; hooks are gone and modes restored afterwards."""
    watcher = Watcher(model)
    try:
        watcher.attach()
        # Compiled code cannot be watched; the same network runs eagerly for this one pass.
        with evaluating(model), torch.compiler.set_stance("force_eager"):
            batch = move(batch, model)
            for tensor in tensors_of(batch):
                watcher.tag(tensor, uniform(frozenset({INPUT}), tensor.ndim))
            with watcher:
                result = run(model, batch, forward)
        return _finish(watcher, result, size_of(batch))
    finally:
        watcher.detach()


_HOME = "torch.nn.modules."  # where classes live that no parametrization made up


def _finish(watcher: Watcher, result: Any, images: int) -> Trace:
    outputs = list(tensors_of(result)) or list(tensors_of(getattr(result, "__dict__", None)))
    columns = [_output_columns(watcher, tensor) for tensor in outputs]
    found = [segments(each) for each in columns]
    for each in columns:
        blurred = {name for origins in each for name, index in origins if index < 0}
        for name in sorted(blurred & set(watcher.seen)):
            found.append((Segment(name, 0, 0, watcher.seen[name].c_out),))
    return Trace(
        layers=tuple(watcher.seen.values()),
        norms=tuple(_norm(name, *seen) for name, seen in watcher.norms.items()),
        sums=tuple(
            replace(found, rectified=watcher.rectified(found.call, outputs))
            for found in watcher.sums
        ),
        rectified=tuple(name for name in watcher.seen if _rectified(watcher, name, outputs)),
        outputs=merged(found),
        heads=tuple(frozenset(layers_in(each)) for each in columns),
        called=frozenset(watcher.called),
        borrowed=frozenset(watcher.borrowed),
        images=images,
    )


def _rectified(watcher: Watcher, layer: str, outputs: list[Tensor]) -> bool:
    """Whether only a ReLU reads a layer, directly or behind the one norm that reads it alone."""
    norms = [
        value[1]
        for value in watcher.readers
        if isinstance(value, tuple) and value[0] == layer and value[1] is not None
    ]
    if not norms:
        return watcher.rectified((layer, None), outputs)
    alone = len(norms) == 1 and watcher.readers.get((layer, None)) == ["batch_norm"]
    return alone and watcher.rectified((layer, norms[0]), outputs)


def _output_columns(watcher: Watcher, tensor: Tensor) -> list[Origins]:
    tag = watcher.tag_of(tensor) or uniform(NOTHING, tensor.ndim)
    if not tensor.ndim:
        return list(tag.origins)
    varying = [dim for dim, size in enumerate(tag.labels.shape) if size > 1]
    return watcher.columns(tensor, varying[0] if len(varying) == 1 else min(1, tensor.ndim - 1))


def _norm(name: str, module: nn.Module, calls: list[list[Origins]]) -> Norm:
    bases = (base for base in type(module).__mro__ if base.__module__.startswith(_HOME))
    feeds = merged(segments(columns) for columns in calls)
    affine = getattr(module, "weight", None) is not None
    return Norm(name, next(bases).__name__, len(calls[0]), feeds, affine)

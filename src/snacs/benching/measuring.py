"""Latency of all contenders in one run, in turn, with medians and spread."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from snacs.benching.contenders import DENSE, SPARSE, Contender, Field, assemble
from snacs.benching.memory import peak_bytes
from snacs.benching.verdict import verdict
from snacs.errors import InputError
from snacs.network.batches import tensors_of

_REST = 0.003
"""Seconds before each timed call, in which the threads of the one before stop waiting for work."""
_ROUNDS = 5
Row = dict[str, Any]


@dataclass(frozen=True, eq=False)
class Bench:
    """What was measured.

    Attributes
    ----------
    rows : one per contender and batch size: ``median_ms`` and ``best_ms`` of ``rounds`` calls,
        ``spread`` (half the distance between the quartiles, over the median),
        ``images_per_second`` (median), ``speedup`` over dense torch by medians and
        ``speedup_best`` by best times, ``ideal`` (ratio of multiply-adds) and ``of_ideal``
        (speedup_best over it), ``peak_mb``, ``file_mb``
    layers : one per layer and batch size: how it ran, its ideal, and how much of it was reached
    notes : in words: what was gained, or why nothing was
    """

    rows: tuple[Row, ...]
    layers: tuple[Row, ...]
    notes: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        return {"rows": list(self.rows), "layers": list(self.layers), "notes": list(self.notes)}


def bench(
    model: nn.Module,
    example: Any,
    *,
    batches: Sequence[int] = (1, 16, 64),
    seconds: float = 2.0,
    onnx: bool = True,
    memory: bool = True,
    progress: Callable[[str], None] | None = None,
) -> Bench:
    """Measure a pruned network dense, compacted, in onnxruntime and in the sparse runtime.

    Parameters
    ----------
    model : nn.Module
        Masked, baked or compacted; it is not changed.
    example : x, (x, y), …
        A batch as the network takes it; only its shape matters.
    batches : batch sizes
    seconds : time for each contender at each batch size; five calls are timed at least
    onnx : measure onnxruntime too (the ``onnx`` extra)
    memory : measure peak memory, in a fresh process each
    progress : called with what comes next

    Returns
    -------
    Bench
    """
    if not batches or min(batches) < 1 or not 0 < seconds < float("inf"):
        raise InputError(
            f"bench needs batch sizes of at least 1 and a positive time. Got {list(batches)} and "
            f"{seconds}."
        )
    tensors = list(tensors_of(example))
    if not tensors:
        raise InputError(f"bench needs an example batch. Got {type(example).__name__}.")
    x = tensors[0].detach().cpu()
    tell = progress or (lambda _: None)
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    rows: list[Row] = []
    layers: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="snacs-bench-") as place:
        tell("building the contenders")
        field = assemble(model, x, Path(place), onnx=onnx)
        for size in batches:
            tell(f"batch {size}")
            images = torch.randn(size, *x.shape[1:], generator=torch.Generator().manual_seed(0))
            times = _race(field.contenders, images, seconds)
            rows += _rows(field, images, times, memory=memory)
            layers += _layers(field, size)
    notes = (*verdict(rows, layers), *_busy(load), *field.notes)
    return Bench(tuple(rows), tuple(layers), notes)


def _busy(load: float) -> list[str]:
    """A warning if others had the cores, which hurts threads that wait for each other most."""
    cores = os.cpu_count() or 1
    if load < 0.5 * cores:
        return []
    return [
        f"The machine was busy (load {load:.1f} on {cores} cores): several threads suffer most, "
        "and not all libraries alike. Measure again when it is idle, or with one thread."
    ]


def _race(
    contenders: Sequence[Contender], images: Tensor, seconds: float
) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {each.name: [] for each in contenders}
    with torch.no_grad():
        for each in contenders:
            each.call(images)
        begun = time.perf_counter()
        while True:
            for each in contenders:
                time.sleep(_REST)
                each.call(images)  # what the rest has let fall asleep wakes up
                start = time.perf_counter()
                each.call(images)
                found[each.name].append(time.perf_counter() - start)
            done = len(next(iter(found.values())))
            if done >= _ROUNDS and time.perf_counter() - begun > seconds * len(contenders):
                return found


def _rows(
    field: Field, images: Tensor, times: dict[str, list[float]], *, memory: bool
) -> list[Row]:
    medians = {name: float(np.median(each)) for name, each in times.items()}
    best = {name: min(each) for name, each in times.items()}
    dense = next(each for each in field.contenders if each.name == DENSE)
    rows = []
    for each in field.contenders:
        low, high = np.percentile(times[each.name], [25, 75])
        median, ideal = medians[each.name], dense.macs / max(1, each.macs)
        peak = None
        if memory and each.file is not None:
            peak = peak_bytes(each.kind, each.file, tuple(images.shape))
        rows.append(
            {
                "what": each.name,
                "batch": len(images),
                "median_ms": round(1e3 * median, 4),
                "best_ms": round(1e3 * best[each.name], 4),
                "spread": round(float(high - low) / 2 / median, 3),
                "images_per_second": round(len(images) / median, 1),
                "speedup": round(medians[DENSE] / median, 3),
                "speedup_best": round(best[DENSE] / best[each.name], 3),
                "ideal": round(ideal, 3),
                "of_ideal": round(best[DENSE] / best[each.name] / ideal, 3),
                "peak_mb": None if peak is None else round(peak / 1e6, 1),
                "file_mb": None if each.bytes is None else round(each.bytes / 1e6, 3),
                "threads": torch.get_num_threads(),
                "rounds": len(times[each.name]),
            }
        )
    return rows


def _layers(field: Field, images: int) -> list[Row]:
    """How each layer of the sparse runtime did in its last call, which had this many images."""
    rows = []
    for layer in field.fast.layers:
        ours = layer.dense if layer.runs == "dense" else getattr(layer, layer.layout)
        ideal = layer.macs / max(1, layer.macs_kept)
        rows.append(
            {
                "batch": images,
                **{k: v for k, v in asdict(layer).items() if k not in ("pixels", "images")},
                "seconds": ours,
                "speedup": layer.dense / ours,
                "ideal": ideal,
                "of_ideal": layer.dense / ours / ideal,
            }
        )
    return rows


__all__ = ["DENSE", "SPARSE", "Bench", "bench"]

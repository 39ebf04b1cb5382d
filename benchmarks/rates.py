"""What this machine can do, and how much of it the layer view needs at least."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numba
import numpy as np

from benchmarks.measure import CPU, best_of
from snacs.config import Config
from snacs.scores import layer as layer_view
from snacs.scores import score
from snacs.values import Evidence


@dataclass(frozen=True)
class Rates:
    """Per second, one thread, everything in the first-level cache."""

    adds: float
    divisions: float


@dataclass(frozen=True)
class Work:
    """Operations of all parents: for one bin per child, and for the bins that children have."""

    adds: float
    divisions: float
    plane_adds: float
    plane_divisions: float
    bins: float


@numba.njit(nogil=True, error_model="numpy")
def _add(total: Any, rows: Any, repeats: int) -> None:
    for _ in range(repeats):
        for row in range(0, len(rows), 4):
            for column in range(len(total)):
                total[column] += (
                    rows[row, column]
                    + rows[row + 1, column]
                    + rows[row + 2, column]
                    + rows[row + 3, column]
                )


@numba.njit(nogil=True, error_model="numpy")
def _divide(total: Any, top: Any, bottom: Any, repeats: int) -> None:
    for _ in range(repeats):
        for column in range(len(total)):
            total[column] += top[column] / bottom[column]


def measure(width: int = 512, repeats: int = 5000) -> Rates:
    """Byte adds, and float32 divisions with their sum, as fast as compiled loops do them."""
    rows = np.ones((16, width), np.uint8)
    total = np.zeros(width, np.uint8)
    adds = best_of(9, lambda: _add(total, rows, repeats), clock=CPU)
    top, bottom = np.ones(width, np.float32), np.full(width, 3, np.float32)
    sums = np.zeros(width, np.float32)
    divisions = best_of(9, lambda: _divide(sums, top, bottom, repeats), clock=CPU)
    return Rates(rows.size * repeats / adds, width * repeats / divisions)


def work_of(evidence: Evidence, options: Mapping[str, Any], *, seed: int) -> Work:
    """Count samples and segments by listening to one run of the layer view."""
    parents: list[np.ndarray] = []
    bins: list[np.ndarray] = []

    def summing(original: Any) -> Any:
        def listen(*arguments: Any) -> Any:
            original(*arguments)
            first, last, _, found = arguments[-4:]
            parents.extend(found[first:last, 2:])

        return listen

    def packing(original: Any) -> Any:
        def listen(numbers: Any, counts: Any, *rest: Any) -> Any:
            bins.append(counts)
            return original(numbers, counts, *rest)

        return listen

    listeners = {"sum_parents": summing, "sum_parents_wide": summing, "pack_children": packing}
    originals = {name: getattr(layer_view, name) for name in listeners}
    for name, listen in listeners.items():
        setattr(layer_view, name, listen(originals[name]))
    try:
        score(evidence, Config.preset("default", score="acmi", **options), seed=seed)
    finally:
        for name, original in originals.items():
            setattr(layer_view, name, original)
    samples, segments = np.sum(parents, axis=0, dtype=float)
    children = bins[0]
    return Work(
        adds=samples * len(children),
        divisions=segments * len(children),
        plane_adds=samples * float((children - 1).sum()),
        plane_divisions=segments * float(children.sum()),
        bins=float(children.mean()),
    )

"""Methods under equal terms: same network, images, sparsity, repair, retraining, seeds.

Each cell (method, target, seed) has a run folder of its own and is measured on every test image
after each stage. An interrupted comparison goes on where it stopped; several processes may work in
the same folder, each at cells that no other holds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from snacs.config import PRESETS, Goal
from snacs.errors import InputError
from snacs.experiments.cells import STAGES, Bench, Cell
from snacs.experiments.measuring import estimate, paired
from snacs.experiments.methods import Method, method_of
from snacs.experiments.sharing import trying, waiting


def compare(
    bench: Bench,
    *,
    targets: Sequence[float],
    methods: Sequence[str | Method],
    seeds: int = 1,
    seed: int = 0,
) -> list[Cell]:
    """One cell per method, target and seed (``seed``, ``seed + 1``, …), in that order."""
    if seeds < 1:
        raise InputError(f"'seeds' must be at least 1. Got {seeds}.")
    for target in targets:
        Goal(target=target)
    given = [
        method_of(found, count=bench.material.count) if isinstance(found, str) else found
        for found in methods
    ]
    known = {method.name: method for method in given}
    # Seeds outermost: the calibration images of one seed are held at a time.
    places = list(product(range(seed, seed + seeds), targets, known))
    done: dict[tuple[int, float, str], Cell] = {}

    def attempt(place: tuple[int, float, str], *, wait: bool) -> None:
        number, target, name = place
        folder = cell_folder(bench.folder, name, target, number)
        with waiting(folder, bench.watch) if wait else trying(folder) as run:
            if run is not None:
                done[place] = bench.cell(run, known[name], target, number)
                bench.watch("comparison", len(done), len(places), f"{name} {target:g} {number}")

    for place in places:
        attempt(place, wait=False)
    for place in places:
        if place not in done:
            attempt(place, wait=True)
    return [done[number, t, name] for name, t, number in product(known, targets, _seeds(places))]


def cell_folder(folder: Path, method: str, target: float, seed: int) -> Path:
    """Where a cell keeps its files."""
    return folder / "cells" / f"{method}-{target:g}-seed{seed}"


def reference_of(methods: Sequence[str], asked: str | None = None) -> str:
    """The method that others are compared with: asked for, the default, paper, else the first."""
    if asked is not None:
        return asked
    return next((name for name in PRESETS if name in methods), methods[0])


def summary(cells: Sequence[Cell], *, against: str | None = None) -> list[dict[str, Any]]:
    """One row per method and target: means over seeds, and paired differences from one method.

    ``masked`` … ``retrained`` are accuracies, ``errors`` their standard errors over the test
    images, ``differences`` how much better or worse than the reference, with the paired error,
    ``divergence`` the mean KL from the dense network's outputs with its error.
    """
    names = list(dict.fromkeys(cell.method for cell in cells))
    reference = reference_of(names, against)
    if reference not in names:
        raise InputError(f"{reference!r} is not among the methods {', '.join(names)}.")
    rows = []
    for name, target in product(names, dict.fromkeys(cell.target for cell in cells)):
        mine = list(_of(cells, name, target))
        theirs = list(_of(cells, reference, target))
        rows.append(_row(name, target, mine, theirs))
    return rows


def _row(name: str, target: float, mine: list[Cell], theirs: list[Cell]) -> dict[str, Any]:
    row: dict[str, Any] = {"method": name, "target": target, "seeds": len(mine)}
    for fact in ("pruned", "macs", "macs_compacted", "bytes_csr"):
        row[fact] = float(np.mean([cell.facts[fact] for cell in mine]))
    extra: dict[str, dict[str, Any]] = {key: {} for key in ("errors", "differences", "spread")}
    extra |= {"among": {}, "divergence": {}, "divergence_differences": {}}
    for stage in [stage for stage in STAGES if stage in mine[0].stages]:
        ours = [cell.stages[stage] for cell in mine]
        base = [cell.stages[stage] for cell in theirs]
        right = [found.right for found in ours]
        row[stage], extra["errors"][stage] = estimate(np.mean(right, axis=0))
        extra["differences"][stage] = paired(right, [found.right for found in base])
        extra["spread"][stage] = [float(found.right.mean()) for found in ours]
        extra["among"][stage] = estimate(np.mean([found.among for found in ours], axis=0))
        drift = [found.divergence for found in ours]
        extra["divergence"][stage] = _finite(estimate(np.mean(drift, axis=0)))
        extra["divergence_differences"][stage] = _finite(
            paired(drift, [found.divergence for found in base])
        )
        row["error"] = extra["errors"][stage]  # of the last stage
    return {**row, **extra}


def _finite(found: tuple[float, float]) -> list[float | None]:
    """JSON knows no infinity."""
    return [value if np.isfinite(value) else None for value in found]


def _of(cells: Sequence[Cell], method: str, target: float) -> Iterator[Cell]:
    return (cell for cell in cells if (cell.method, cell.target) == (method, target))


def _seeds(places: Sequence[tuple[int, float, str]]) -> list[int]:
    return list(dict.fromkeys(place[0] for place in places))

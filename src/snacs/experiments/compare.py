"""Methods side by side on one network: same images, same targets, same repair.

Each cell (method, target) is measured three times on the test images: with the masks alone, after
re-estimating BatchNorm, and after repair. Cells are stages of the run folder, so an interrupted
comparison goes on where it stopped.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from torch import nn

from snacs.config import PRESETS, SCORES, Config, Goal
from snacs.errors import InputError
from snacs.files import read_json, write_json
from snacs.jobs import Job, digest_of, fingerprint, make_job
from snacs.network.cost import accuracy
from snacs.network.layers import Ignore
from snacs.network.repair import repair_
from snacs.pipeline import apply_
from snacs.planning import make_plan
from snacs.plans import Plan
from snacs.reporting.progress import Watch
from snacs.store import Run, key_of

MINT_GROUPS = 16
"""MINT's tree costs about 0.03 s per pair, so its filters are scored in this many groups."""


@dataclass(frozen=True)
class Cell:
    """One method at one target; accuracies as fractions, with the standard error of the last."""

    method: str
    target: float
    pruned: float
    macs: float
    masked: float
    batchnorm: float
    repaired: float
    error: float


def method_config(method: str) -> Config:
    """A preset by name, or a score under uniform allocation without protection."""
    if method in PRESETS:
        return Config.preset(method)
    if method not in SCORES:
        raise InputError(
            f"There is no method {method!r}. Presets: {', '.join(PRESETS)}; "
            f"scores: {', '.join(SCORES)}."
        )
    groups = MINT_GROUPS if method == "mint" else None
    return Config.preset("default", score=method, allocation="uniform", shares=(), groups=groups)


def compare(
    model: nn.Module,
    images: Iterable[Any],
    test: Iterable[Any],
    *,
    targets: Sequence[float],
    methods: Sequence[str],
    run: Run,
    watch: Watch,
    bn_images: Iterable[Any] | None = None,
    seed: int = 0,
    jobs: int | None = None,
    changes: Mapping[str, Any] | None = None,
    ignore: Sequence[Ignore] = (),
) -> tuple[float, list[Cell]]:
    """Accuracy of the dense network on ``test``, and one cell per method and target."""
    kept = list(images)  # several jobs read them
    marks = {"test": digest_of(test), "bn": digest_of(bn_images)}
    dense = _measured(run, "accuracy/dense", marks, model, test, watch)
    cells = []
    total = len(methods) * len(targets)
    for method in methods:
        config = Config.preset("default", **{**method_config(method).as_dict(), **(changes or {})})
        for target in targets:
            job = make_job(
                model, kept, Goal(target=target), config, run, watch, seed=seed, jobs=jobs,
                ignore=ignore, place=f"plans/{method}-{target:g}",
            )  # fmt: skip
            cells.append(_cell(job, method, target, test, bn_images, marks))
            watch("comparison", len(cells), total)
    return dense, cells


def _cell(
    job: Job,
    method: str,
    target: float,
    test: Iterable[Any],
    bn_images: Iterable[Any] | None,
    marks: Mapping[str, Any],
) -> Cell:
    def fill(folder: Path) -> None:
        plan = make_plan(job)
        found = {
            name: _treated(job, plan, test, bn_images, **steps)
            for name, steps in {
                "masked": {},
                "batchnorm": {"batchnorm": True},
                "repaired": {"batchnorm": True, "least_squares": True},
            }.items()
        }
        error = (found["repaired"] * (1 - found["repaired"]) / marks["test"][1]) ** 0.5
        cell = Cell(method, target, plan.pruned, plan.pruned_macs, error=error, **found)
        write_json(folder / "cell.json", asdict(cell))

    key = key_of(plan=job.plan_key, **marks)
    folder = job.run.once(f"cells/{method}-{target:g}", key, fill)
    return Cell(**read_json(folder / "cell.json"))


def _treated(
    job: Job,
    plan: Plan,
    test: Iterable[Any],
    bn_images: Iterable[Any] | None,
    *,
    batchnorm: bool = False,
    least_squares: bool = False,
) -> float:
    pruned = copy.deepcopy(job.model)
    apply_(pruned, plan)
    if batchnorm or least_squares:
        repair_(
            pruned,
            job.calibration.batches,
            structure=plan.structure,
            forward=job.forward,
            ridge=job.config.ridge,
            least_squares=least_squares,
            batchnorm=batchnorm,
            bn_images=bn_images,
        )
    return accuracy(pruned, test, forward=job.forward).fraction


def _measured(
    run: Run,
    place: str,
    marks: Mapping[str, Any],
    model: nn.Module,
    test: Iterable[Any],
    watch: Watch,
) -> float:
    def fill(folder: Path) -> None:
        count = marks["test"][1]
        found = accuracy(model, test, progress=lambda done: watch("dense", done, count))
        write_json(folder / "accuracy.json", found._asdict())

    folder = run.once(place, key_of(model=fingerprint(model), **marks), fill)
    return float(read_json(folder / "accuracy.json")["fraction"])

"""One method at one target with one seed, carried through all stages of the pipeline.

The stages are: masks alone, BatchNorm measured again, repaired, retrained. Each is kept by what it
was made from, so a cell goes on where it stopped, and retraining goes on at its last epoch.
"""

from __future__ import annotations

import copy
import hashlib
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.torch import load_file, save
from torch import nn

from snacs.config import PRESETS, Goal
from snacs.experiments.material import Material
from snacs.experiments.measuring import Measured, measured, outputs_of
from snacs.experiments.methods import Method, method_of, repairing
from snacs.experiments.sharing import waiting
from snacs.files import read_json, write_file, write_json
from snacs.jobs import Job, digest_of, fingerprint, make_job, shape_of
from snacs.network.cost import cost
from snacs.network.masking import apply_
from snacs.network.repair import repair_
from snacs.planning import make_plan
from snacs.plans import Plan
from snacs.pruning import epochs_watch, repaired_
from snacs.reporting.progress import Watch
from snacs.store import Run, key_of
from snacs.training import Recipe, train_

STAGES = ("masked", "batchnorm", "repaired", "retrained")
STARTS = ("repaired", "masked", "own")
"""What retraining may start from: equal terms for all; masks alone, as the paper does; or what the
method's own configuration says."""


@dataclass(frozen=True, eq=False)
class Cell:
    """What came of one method at one target with one seed."""

    method: str
    target: float
    seed: int
    facts: Mapping[str, Any]
    stages: Mapping[str, Measured]

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON."""
        stages = {name: found.facts() for name, found in self.stages.items()}
        named = {"method": self.method, "target": self.target, "seed": self.seed}
        return {**named, **self.facts, "stages": stages}


class Bench:
    """Makes cells from one material in one folder.

    Parameters
    ----------
    recipe : how to retrain; None for not at all.
    start : one of :data:`STARTS`.
    """

    def __init__(
        self,
        material: Material,
        folder: Path,
        watch: Watch,
        *,
        recipe: Recipe | None = None,
        start: str = "repaired",
        jobs: int | None = None,
    ) -> None:
        self.material, self.folder, self.watch = material, folder, watch
        self.recipe, self.start, self.jobs = recipe, start, jobs
        self._job: tuple[int, Job] | None = None

    @property
    def stages(self) -> tuple[str, ...]:
        return STAGES if self.recipe is not None else STAGES[:-1]

    @cached_property
    def test_digest(self) -> str:
        return digest_of(self.material.test)[0]

    @cached_property
    def dense(self) -> tuple[Any, Any]:
        """Outputs of the dense network on the test images, and their labels."""
        key = key_of(model=fingerprint(self.material.model), test=self.test_digest)
        place = f"outputs-{self.material.half}-{key[:12]}"

        def fill(folder: Path) -> None:
            logits, labels = self._outputs(self.material.model, "dense")
            np.savez(folder / "outputs.npz", allow_pickle=False, logits=logits, labels=labels)

        with (
            waiting(self.folder / "dense", self.watch) as run,
            np.load(run.once(place, key, fill) / "outputs.npz", allow_pickle=False) as arrays,
        ):
            return arrays["logits"], arrays["labels"]

    @cached_property
    def dense_measured(self) -> Measured:
        return measured(*self.dense, self.dense[0], self.material.classes)

    def job(self, seed: int) -> Job:
        """Images, structure and keys of a seed; only the last one is held."""
        if self._job is None or self._job[0] != seed:
            self._job = None
            config = method_of("default", count=self.material.count).config
            goal = Goal(target=0.5)
            run = Run(self.folder / "plans" / f"seed-{seed}")
            job = make_job(
                self.material.model, self.material.calibration(seed), goal, config, run, self.watch,
                seed=seed, jobs=self.jobs, ignore=self.material.ignore,
            )  # fmt: skip
            self._job = seed, job
        return self._job[1]

    def plan(self, method: Method, target: float, seed: int) -> Plan:
        """The plan of a method, made once; plans of a seed share their evidence."""
        job = self.job(seed)
        with waiting(job.run.folder, self.watch) as run:
            if method.follows:
                leader = method_of("default", count=self.material.count)
                method = method.following(self._plan(run, job, leader, target))
            return self._plan(run, job, method, target)

    def cell(self, run: Run, method: Method, target: float, seed: int) -> Cell:
        """All stages of one cell, in a run folder of its own."""
        plan = self.plan(method, target, seed)
        carried = _Carried(self, run, method, plan, seed)
        stages = {stage: carried.measure(stage) for stage in self.stages}
        found = cost(plan.structure, plan.masks)
        facts = {
            "pruned": found.pruned,
            "macs": 1 - found.macs_kept / found.macs,
            "macs_compacted": 1 - found.macs_compacted / found.macs,
            "bytes": found.dense_bytes,
            "bytes_csr": found.csr_bytes,
            "layers": {part.layer.name: part.pruned for part in plan.layers},
            "protected": {part.layer.name: float(part.protected.mean()) for part in plan.layers},
            **({"epochs": carried.epochs} if self.recipe is not None else {}),
        }
        return Cell(method.name, target, seed, facts, stages)

    def _plan(self, run: Run, job: Job, method: Method, target: float) -> Plan:
        goal = Goal() if method.config.allocation == "manual" else Goal(target=target)
        options = {name: _plain(value) for name, value in method.options.items()}
        # Only what the method depends on: a new default preset leaves the baselines' plans alone.
        key = key_of(
            version=job.facts["versions"]["snacs"], model=job.facts["model"],
            outputs=job.facts["outputs"], images=job.facts["images"], seed=job.seed,
            structure=asdict(job.structure), options=options, goal=asdict(goal),
        )  # fmt: skip
        place = f"kept/{method.name}-{target:g}"
        if not run.has(place, key):
            asked = replace(
                job,
                run=run,
                config=method.config,
                goal=goal,
                place=f"made/{method.name}-{target:g}",
            )
            run.once(place, key, make_plan(asked).write_into)
        return Plan.load(run.folder / place)

    def _outputs(self, model: nn.Module, name: str) -> tuple[Any, Any]:
        count = len(self.material.test)  # type: ignore[arg-type]
        seen = [0]

        def show(done: int) -> None:
            seen[0] += 1
            self.watch(f"test {name}", seen[0], count, f"{done} images")

        return outputs_of(model, self.material.test, progress=show)


class _Carried:
    """The network of one cell on its way; every step is read where it is there."""

    def __init__(self, bench: Bench, run: Run, method: Method, plan: Plan, seed: int) -> None:
        self.bench, self.run, self.method, self.plan, self.seed = bench, run, method, plan, seed
        self.bn = bench.material.bn(seed)
        self.masks = _masks_digest(plan)
        self.epochs: list[dict[str, Any]] = []

    def measure(self, stage: str) -> Measured:
        make: Callable[[], nn.Module] = getattr(self, f"_{stage}")
        model = None
        parts: dict[str, Any] = {"stage": stage, "test": self.bench.test_digest}
        if stage in ("masked", "batchnorm"):  # cheap to make again, so their weights are not kept
            parts |= {"masks": self.masks, "model": self.bench.job(self.seed).facts["model"]}
            parts |= {"silence": self.plan.config.silence}
            parts |= {"bn": digest_of(self.bn)[0]} if stage == "batchnorm" else {}
        else:
            model = make()
            parts |= {"weights": fingerprint(model)}

        def fill(folder: Path) -> None:
            logits, labels = self.bench._outputs(make() if model is None else model, stage)
            dense, classes = self.bench.dense[0], self.bench.material.classes
            measured(logits, labels, dense, classes).write_into(folder)

        key = key_of(**parts)
        place = f"measured/{stage}-{self.bench.material.half}-{key[:12]}"
        return Measured.read(self.run.once(place, key, fill))

    def _masked(self) -> nn.Module:
        model = copy.deepcopy(self.bench.material.model)
        plan = self.plan
        apply_(model, plan.masks, structure=plan.structure, silence=plan.config.silence)
        return model

    def _batchnorm(self) -> nn.Module:
        model, job = self._masked(), self.bench.job(self.seed)
        repair_(
            model, job.calibration.batches, structure=self.plan.structure,
            least_squares=False, batchnorm=True, bn_images=self.bn,
        )  # fmt: skip
        return model

    def _repaired(self) -> nn.Module:
        model, job = self._masked(), self.bench.job(self.seed)
        asked = replace(
            job,
            run=self.run,
            config=repairing(self.plan.config),
            goal=self.plan.goal,
            facts={**job.facts, "images": [job.facts["images"], self.masks]},  # part of its key
        )
        repaired_(asked, self.plan, model, self.bn)
        return model

    def _retrained(self) -> nn.Module:
        bench, recipe = self.bench, self.bench.recipe
        if recipe is None:
            raise RuntimeError("There is no recipe to retrain by.")
        repaired = bench.start == "repaired" or (bench.start == "own" and self.plan.config.repair)
        model = self._repaired() if repaired else self._masked()
        train = bench.material.train(self.seed, recipe.batch)
        key = key_of(
            start=fingerprint(model), recipe=recipe.as_dict(), seed=self.seed, data=shape_of(train)
        )
        place = f"retrained/{key[:12]}"
        checkpoints = self.run.folder / "training" / key[:12]

        def fill(folder: Path) -> None:
            history = train_(
                model, train, recipe=recipe, folder=checkpoints, seed=self.seed,
                accelerator={"cpu": True} if bench.material.device == "cpu" else None,
                progress=epochs_watch(bench.watch, f"retrain {self.method.name} {self.seed}"),
            )  # fmt: skip
            state = {
                n: t.detach().cpu().clone().contiguous() for n, t in model.state_dict().items()
            }
            write_file(folder / "masked.safetensors", save(state))
            write_json(folder / "epochs.json", [asdict(row) for row in history.rows])

        folder = self.run.once(place, key, fill)
        shutil.rmtree(checkpoints, ignore_errors=True)
        model.load_state_dict(load_file(folder / "masked.safetensors"))
        self.epochs = read_json(folder / "epochs.json")
        return model


def reference_of(methods: Sequence[str], asked: str | None = None) -> str:
    """The method that others are compared with: the one asked for, the default, else the first."""
    if asked is not None:
        return asked
    return next((name for name in PRESETS if name in methods), methods[0])


def _masks_digest(plan: Plan) -> str:
    digest = hashlib.sha256()
    for name, mask in plan.masks.items():
        digest.update(name.encode() + np.packbits(mask).tobytes() + str(mask.shape).encode())
    return digest.hexdigest()


def _plain(value: Any) -> Any:
    """JSON has lists, not tuples."""
    return list(value) if isinstance(value, tuple) else value

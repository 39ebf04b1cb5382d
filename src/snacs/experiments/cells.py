"""One method at one target with one seed, carried through all stages of the pipeline.

The stages are: masks alone, BatchNorm measured again, repaired, retrained. Each is kept by what it
was made from, so a cell goes on where it stopped, and retraining goes on at its last epoch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from snacs.config import Config, Goal, check_choice
from snacs.errors import InputError
from snacs.experiments import torch_pruning
from snacs.experiments.carrying import Carried
from snacs.experiments.material import Material
from snacs.experiments.measuring import Measured, measured, outputs_of
from snacs.experiments.methods import Method, method_of
from snacs.experiments.sharing import waiting
from snacs.jobs import Job, digest_of, fingerprint, lesson_of, make_job
from snacs.network.batches import tensors_of
from snacs.network.calibration import Calibration
from snacs.network.cost import cost
from snacs.planning import make_plan
from snacs.plans import Plan
from snacs.reporting.progress import Watch
from snacs.store import Run, key_of
from snacs.training import Recipe

STAGES = ("masked", "batchnorm", "repaired", "retrained")
NAMES = {"batchnorm": "BatchNorm"}
"""Stages that tables and figures spell differently."""
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
    stages : which to measure; None for all there are.
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
        stages: Sequence[str] | None = None,
    ) -> None:
        self.material, self.folder, self.watch = material, folder, watch
        check_choice("start", start, STARTS)
        self.recipe, self.start, self.jobs = recipe, start, jobs
        self.stages = stages_of(stages, retrained=recipe is not None)
        self._job: tuple[int, Job] | None = None

    @cached_property
    def test_digest(self) -> str:
        return digest_of(self.material.test)[0]

    @cached_property
    def dense(self) -> tuple[Any, Any]:
        """Outputs of the dense network on the test images, and their labels."""
        key = key_of(model=fingerprint(self.material.model), test=self.test_digest)
        place = f"outputs-{self.material.half}-{key[:12]}"

        def fill(folder: Path) -> None:
            logits, labels = self.outputs(self.material.model, "dense")
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
            if method.follows or method.foreign:
                leading = method_of("default", count=self.material.count)
                leader = self._plan(run, job, leading, target)
                if method.foreign:
                    return self._foreign(run, job, method, leader, target)
                method = method.following(leader)
            return self._plan(run, job, method, target)

    def cell(self, run: Run, method: Method, target: float, seed: int) -> Cell:
        """All stages of one cell, in a run folder of its own."""
        plan = self.plan(method, target, seed)
        carried = Carried(self, run, method, plan, seed)
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
                lesson=self._lesson(job, method.config),
            )
            run.once(place, key, make_plan(asked).write_into)
        return Plan.load(run.folder / place)

    def _lesson(self, job: Job, config: Config) -> Calibration | None:
        """Images to exchange kernels on, where the method does."""
        images = self.material.exchange(job.seed, config.exchange)
        return lesson_of(images or (), job.model, config, seed=job.seed, watch=self.watch)

    def _foreign(self, run: Run, job: Job, method: Method, leader: Plan, target: float) -> Plan:
        """The plan of another program at as many MACs as the leader's."""
        tool = torch_pruning.installed_version()
        key = key_of(
            tool=tool, model=job.facts["model"], macs=leader.pruned_macs,
            structure=asdict(job.structure),
        )  # fmt: skip
        place = f"kept/{method.name}-{target:g}"

        def fill(folder: Path) -> None:
            images = next(tensors_of(job.calibration.batches[0]))[:2]
            torch_pruning.plan_at_macs(
                job.model, job.structure, images, leader.pruned_macs, method.config
            ).write_into(folder)

        return Plan.load(run.once(place, key, fill))

    def outputs(self, model: nn.Module, name: str) -> tuple[Any, Any]:
        count = len(self.material.test)  # type: ignore[arg-type]
        seen = [0]

        def show(done: int) -> None:
            seen[0] += 1
            self.watch(f"test {name}", seen[0], count, f"{done} images")

        return outputs_of(model, self.material.test, progress=show)


def stages_of(asked: Sequence[str] | None, *, retrained: bool) -> tuple[str, ...]:
    """The stages to measure, in their order.

    >>> stages_of(["repaired", "batchnorm"], retrained=False)
    ('batchnorm', 'repaired')
    """
    there = STAGES if retrained else STAGES[:-1]
    for stage in asked or ():
        if stage not in there:
            more = " To retrain, say for how many epochs." if stage == STAGES[-1] else ""
            raise InputError(f"A stage must be one of {', '.join(there)}. Got {stage!r}.{more}")
    return tuple(stage for stage in there if asked is None or stage in asked)


def _plain(value: Any) -> Any:
    """JSON has lists, not tuples."""
    return list(value) if isinstance(value, tuple) else value

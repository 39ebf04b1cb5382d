"""The network of one cell on its way: masked, BatchNorm measured again, repaired, retrained."""

from __future__ import annotations

import copy
import hashlib
import shutil
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors.torch import load_file, save
from torch import nn

from snacs.experiments.measuring import Measured, measured
from snacs.experiments.methods import Method, repairing
from snacs.files import read_json, write_file, write_json
from snacs.jobs import digest_of, fingerprint, shape_of
from snacs.network.masking import apply_
from snacs.network.repair import repair_
from snacs.plans import Plan
from snacs.pruning import epochs_watch, repaired_
from snacs.store import Run, key_of
from snacs.training import train_

if TYPE_CHECKING:
    from snacs.experiments.cells import Bench


class Carried:
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
            logits, labels = self.bench.outputs(make() if model is None else model, stage)
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
            compared=lambda done, total: self.bench.watch("outputs", done, total),
        )  # fmt: skip
        return model

    def _repaired(self) -> nn.Module:
        model, job = self._masked(), self.bench.job(self.seed)
        asked = replace(
            job,
            run=self.run,
            config=repairing(self.plan.config, self.method.changed),
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
        teacher = bench.material.model if recipe.distillation else None
        parts: dict[str, Any] = {"start": fingerprint(model), "recipe": recipe.as_dict()}
        parts |= {} if teacher is None else {"teacher": fingerprint(teacher)}
        key = key_of(**parts, seed=self.seed, data=shape_of(train))
        place = f"retrained/{key[:12]}"
        checkpoints = self.run.folder / "training" / key[:12]

        def fill(folder: Path) -> None:
            history = train_(
                model, train, recipe=recipe, teacher=teacher, folder=checkpoints, seed=self.seed,
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


def _masks_digest(plan: Plan) -> str:
    digest = hashlib.sha256()
    for name, mask in plan.masks.items():
        digest.update(name.encode() + np.packbits(mask).tobytes() + str(mask.shape).encode())
    return digest.hexdigest()

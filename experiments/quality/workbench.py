"""A network, its images and its repair at hand, for questions that are no method of ``compare``."""

from __future__ import annotations

import argparse
import copy
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from snacs.cli.comparing import material_of
from snacs.cli.inputs import open_inputs
from snacs.cli.parser import build_parser
from snacs.connections import prune_order
from snacs.experiments.cells import Bench
from snacs.experiments.measuring import estimate, measured
from snacs.experiments.methods import method_of
from snacs.network.masking import apply_, bake_
from snacs.network.repair import RepairReport, repair_
from snacs.ordering import importance_all
from snacs.plans import Plan
from snacs.reporting.progress import watching

Arrays = Mapping[str, Any]


class Workbench:
    """A network and the calibration images of a seed; measures on the images to choose on."""

    def __init__(self, network: str, *, seed: int, run: Path) -> None:
        arguments = build_parser().parse_args(["compare", network, "--half", "dev"])
        self.material = material_of(arguments, open_inputs(arguments))
        self.seed = seed
        with watching(False) as watch:
            self.bench = Bench(self.material, run, watch)
        self.job = self.bench.job(seed)
        self.dense = self.material.model
        self.bn = self.material.bn(seed)

    def plan(self, target: float) -> Plan:
        """The default's: it says how many connections of every layer go."""
        count = self.material.count
        return self.bench.plan(method_of("default", count=count), target, self.seed)

    @property
    def importance(self) -> Arrays:
        with self.job.run:
            return importance_all(self.job)

    def masked(self, plan: Plan, scores: Arrays) -> nn.Module:
        """A copy that keeps the best connections of every layer, as many as the plan."""
        counts = {part.layer.name: part.layer.connections - part.kept for part in plan.layers}
        return self.keeping(
            {part.layer.name: scores[part.layer.name] for part in plan.layers}, counts
        )

    def keeping(
        self, scores: Arrays, counts: Mapping[str, int], *, start: nn.Module | None = None
    ) -> nn.Module:
        """The same with counts of one's own; ``start`` are weights to begin with."""
        keep = {name: np.ones(np.shape(values), dtype=bool) for name, values in scores.items()}
        for name, values in scores.items():
            keep[name].ravel()[prune_order(values)[: counts[name]]] = False
        model = copy.deepcopy(self.dense if start is None else start)
        bake_(model)
        apply_(model, keep, structure=self.job.structure)
        return model

    def magnitudes(self, model: nn.Module) -> dict[str, Any]:
        """Squared L2 norm of every kernel of the prunable layers."""
        names = [layer.name for layer in self.job.structure.prunable]
        weights = {name: model.get_submodule(name).weight.detach() for name in names}
        return {n: w.double().square().flatten(2).sum(2).numpy() for n, w in weights.items()}

    def repair(self, model: nn.Module, **options: Any) -> RepairReport:
        batches = self.job.calibration.batches
        structure = self.job.structure
        return repair_(
            model, batches, structure=structure, dense=self.dense, bn_images=self.bn, **options
        )

    def show(self, words: str, model: nn.Module) -> None:
        """Accuracy, and KL from the dense outputs, with their standard errors."""
        began = time.perf_counter()
        logits, labels = self.bench.outputs(model, words)
        found = measured(logits, labels, self.bench.dense[0], self.material.classes)
        right, kl = estimate(found.right), estimate(found.divergence)
        seconds = time.perf_counter() - began
        print(
            f"{words}: {right.mean:.2%} ± {right.error:.2%}, KL {kl.mean:.4f} ± {kl.error:.4f} "
            f"({seconds:.0f} s)",
            flush=True,
        )


def answer(ask: Callable[..., None], question: str, *, targets: str = "0.7", **flags: str) -> None:
    """Ask at every target; ``flags`` are options of the question's own, with their help."""
    parser = argparse.ArgumentParser(description=question)
    parser.add_argument("--network", default="resnet56", help="(resnet56)")
    parser.add_argument("--targets", default=targets, help=f"({targets})")
    parser.add_argument("--seed", type=int, default=0, help="(0)")
    parser.add_argument("--run", type=Path, default=Path("runs/quality-workbench"))
    for name, words in flags.items():
        parser.add_argument(f"--{name}", action="store_true", help=words)
    given = parser.parse_args()
    bench = Workbench(given.network, seed=given.seed, run=given.run)
    for text in given.targets.split(","):
        ask(bench, float(text), **{name: getattr(given, name) for name in flags})

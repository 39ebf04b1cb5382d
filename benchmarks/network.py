"""ResNet56 on CIFAR-10: scores against a forward pass, the whole plan against a training epoch."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from benchmarks.measure import SEED, Line, timed
from snacs.config import Config
from snacs.errors import SnacsError
from snacs.network.activations import gather_evidence
from snacs.network.calibration import gather
from snacs.network.layers import find_structure
from snacs.parallel import one_thread
from snacs.pipeline import Pruned, plan, prune
from snacs.plans import Plan
from snacs.scores import score
from snacs.store import Run
from snacs.training import Recipe, train_
from snacs.zoo.data import open_data
from snacs.zoo.entry import seeded
from snacs.zoo.networks import NETWORKS
from snacs.zoo.weights import load_weights_

WHOLE = 50_000
"""Images of a pass and of an epoch; both are extrapolated from fewer."""
SHARED = Path(os.environ.get("SNACS_SHARED", Path(__file__).parent.parent.parent / "shared"))


@dataclass(frozen=True)
class Sizes:
    network: str = "resnet56"
    images: int = 1000
    timed_images: int = 1000

    @staticmethod
    def small() -> Sizes:
        return Sizes(network="small-resnet", images=60, timed_images=60)


@dataclass(frozen=True)
class Case:
    model: nn.Module
    batches: list[Any]
    training: list[Any]
    note: str


def lines(sizes: Sizes) -> Iterator[Line]:
    """All threads that torch uses, on both sides."""
    case = open_case(sizes)
    threads = torch.get_num_threads()
    whole = f"{WHOLE:,} images, extrapolated from {sizes.timed_images:,}"
    yield child_view(case, sizes, whole, threads)
    epoch = epoch_seconds(case, sizes)
    some = (0.1, 0.2, 0.3, 0.5)
    for words, wanted, work in (
        ("whole plan, without protection", 0.25, lambda: plan_of(case, sizes, ())),
        (f"whole plan, protecting ({len(some)} shares)", 0.5, lambda: plan_of(case, sizes, some)),
        ("whole plan, masks and repair", 0.5, lambda: prune_all(case, sizes)),
    ):
        seconds = timed(work)
        yield Line(
            f"{sizes.network}, {words}, of one training epoch on {whole}",
            seconds / epoch,
            "of it",
            wanted,
            "lower",
            seconds={"ours": seconds, "epoch": epoch},
            notes=(case.note, f"{sizes.images:,} images", f"{threads} threads"),
        )


def open_case(sizes: Sizes) -> Case:
    """The trained network on real images where they are; seeded weights and noise elsewhere."""
    entry = NETWORKS[sizes.network]
    model = seeded(entry.build, SEED)
    weights = SHARED / "weights" / f"{sizes.network}-cifar10.safetensors"
    notes = []
    if weights.is_file():
        load_weights_(model, weights)
        notes.append("trained weights")
    else:
        notes.append("seeded weights (the trained ones are not here)")
    try:
        images = open_data(entry.data or "digits", split="train", entry=entry)
        chosen = images.balanced(sizes.images, seed=SEED)
        batches = list(chosen.batches(100))
        training = list(chosen.subset(slice(0, sizes.timed_images)).batches(128, shuffle=SEED))
        notes.append("real images")
    except SnacsError:
        generator = torch.Generator().manual_seed(SEED)
        x = torch.randn(sizes.images, *entry.shape, generator=generator)
        y = torch.arange(sizes.images) % entry.classes
        batches = list(zip(x.split(100), y.split(100), strict=True))
        training = [(x[i : i + 128], y[i : i + 128]) for i in range(0, sizes.timed_images, 128)]
        notes.append("random images (the real ones are not here)")
    return Case(model.eval(), batches, training, ", ".join(notes))


def child_view(case: Case, sizes: Sizes, whole: str, threads: int) -> Line:
    """Scores of all layers from evidence that is there, against one forward pass."""
    config = Config.preset("default", score="acmi")
    calibration = gather(
        case.batches, case.model, count=sizes.images, batch=config.batch, seed=SEED
    )
    structure = find_structure(case.model, calibration.batches[0])
    with Run(None) as run:
        evidence = gather_evidence(
            case.model, structure, calibration, config=config, folder=run.folder / "e", seed=SEED
        )

        def score_all() -> None:
            for found in evidence.values():
                one_thread(score, evidence=found, config=config, seed=SEED, threads=threads)

        score_all()
        ours = min(timed(score_all) for _ in range(2))
    forward = forward_seconds(case, sizes)
    return Line(
        f"child view, all of {sizes.network} ({sizes.images:,} images × {config.positions} "
        f"positions), of one forward pass over {whole}",
        ours / forward,
        "of it",
        0.2,
        "lower",
        seconds={"ours": ours, "forward pass": forward},
        notes=(case.note, f"{threads} threads"),
    )


def forward_seconds(case: Case, sizes: Sizes) -> float:
    def forward() -> None:
        with torch.inference_mode():
            for x, _ in case.batches:
                case.model(x)

    forward()
    return min(timed(forward) for _ in range(2)) * WHOLE / sizes.images


def epoch_seconds(case: Case, sizes: Sizes) -> float:
    """One epoch of the library's own training loop; the first one, which warms up, is not timed."""
    recipe = Recipe(epochs=1, learning_rate=1e-3, batch=128)
    model = seeded(NETWORKS[sizes.network].build, SEED)
    seconds = [
        timed(lambda: train_(model, case.training, recipe=recipe, seed=SEED)) for _ in range(2)
    ]
    return min(seconds) * WHOLE / sizes.timed_images


def plan_of(case: Case, sizes: Sizes, shares: tuple[float, ...]) -> Plan:
    """From network and images to masks: evidence, scores, curves, protection, selection."""
    return plan(
        case.model, case.batches, target=0.6, shares=shares, count=sizes.images, progress=False,
        seed=SEED,
    )  # fmt: skip


def prune_all(case: Case, sizes: Sizes) -> Pruned:
    """The same, and on to the repaired network."""
    return prune(
        case.model, case.batches, target=0.6, count=sizes.images, progress=False, seed=SEED
    )

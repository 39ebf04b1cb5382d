"""The whole method on embedded data: train a small residual network, prune, repair, retrain.

Nothing is chosen on the test images: they are only measured on, before and after each step.
"""

from __future__ import annotations

from pathlib import Path

from snacs.config import Goal
from snacs.errors import InputError
from snacs.files import write_json
from snacs.network.masking import bake_
from snacs.pipeline import Pruned, prune
from snacs.pruning import epochs_watch
from snacs.reporting.progress import Watch
from snacs.store import Run
from snacs.training import Recipe, train_
from snacs.zoo.data import open_data
from snacs.zoo.entry import seeded
from snacs.zoo.networks import NETWORKS
from snacs.zoo.weights import save_weights

NETWORK = "small-resnet"
BATCH = 64
TRAINING = Recipe(epochs=15, learning_rate=0.05, nesterov=True, label_smoothing=0.1, batch=BATCH)
# Repair leaves little to learn again: a low rate and the dense network as teacher, as in "short".
RETRAINING = Recipe(epochs=10, learning_rate=0.01, nesterov=True, distillation=0.9, batch=BATCH)


def demo(folder: Path, *, seeds: int, target: float, watch: Watch) -> list[Pruned]:
    """One outcome per seed; each keeps its files in ``folder/seed-N`` and resumes from there."""
    Goal(target=target)  # before anything is trained
    if seeds < 1:
        raise InputError(f"'seeds' must be at least 1. Got {seeds}.")
    return [_once(folder / f"seed-{seed}", seed, target, watch) for seed in range(seeds)]


def _once(folder: Path, seed: int, target: float, watch: Watch) -> Pruned:
    entry = NETWORKS[NETWORK]
    train, test = (open_data("digits", split=split, entry=entry) for split in ("train", "test"))
    epochs = train.batches(BATCH, shuffle=seed, augment="shift", drop_last=True)
    model = seeded(entry.build, seed)
    train_(
        model,
        epochs.at_epoch,
        recipe=TRAINING,
        folder=folder / "dense",
        seed=seed,
        progress=epochs_watch(watch, f"train {seed}"),
    )
    with Run(folder / "run") as run:
        run.note(network=NETWORK, arguments={"command": "demo", "target": target})
        result = prune(
            model,
            train.batches(BATCH),
            target=target,
            bn_images=epochs,
            train=epochs.at_epoch,
            recipe=RETRAINING,
            test=test.batches(BATCH),
            run=run,
            seed=seed,
            progress=watch,
        )
    bake_(result.model)
    save_weights(model, folder / "dense.safetensors", normalisation=entry.normalisation)
    save_weights(result.model, folder / "pruned.safetensors", normalisation=entry.normalisation)
    write_json(folder / "result.json", result.facts())
    return result

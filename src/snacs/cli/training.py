"""``snacs train``: a dense network, from nothing or from weights, resumable at any moment."""

from __future__ import annotations

import argparse
import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import nn

from snacs.cli.comparing import device_of
from snacs.cli.inputs import (
    MEASURE_BATCH,
    augmentation,
    default_data,
    plain,
    run_folder,
    typed_normalisation,
)
from snacs.cli.showing import out, say
from snacs.cli.timing import seconds_of
from snacs.errors import InputError
from snacs.files import read_json, write_json
from snacs.jobs import fingerprint, shape_of, versions
from snacs.pruning import Meter, epochs_watch
from snacs.reporting import terminal
from snacs.reporting.progress import watching
from snacs.store import Run, key_of
from snacs.training import RECIPES, History, Recipe, recipe, scaled, train_
from snacs.training.budget import Schedule, fit, pace
from snacs.zoo.data import Batches, Images, open_data
from snacs.zoo.data.parts import Parts
from snacs.zoo.entry import Entry, Normalisation, seeded
from snacs.zoo.loading import network
from snacs.zoo.weights import load_weights_, normalisation_of, save_weights

Arguments = argparse.Namespace


def train_network(arguments: Arguments) -> None:
    """Train, measure once on the test images, and write the weights."""
    asked = _recipe(arguments)
    arguments.run = run_folder(arguments, "train")
    model, entry, normalisation = _start(arguments)
    arguments.data = arguments.data or default_data(arguments.network, entry)
    train, test = (
        _some(arguments, split, entry, normalisation, count)
        for split, count in (("train", arguments.train_images), ("test", arguments.test_images))
    )
    augment = augmentation(arguments.data)
    batches = train.batches(
        asked.batch, shuffle=arguments.seed, augment=augment, drop_last=len(train) >= asked.batch
    )
    with Run(arguments.run) as run, watching(not arguments.quiet) as watch:
        run.note(arguments=plain(arguments))
        begin = fingerprint(model)
        schedule = _schedule(run, arguments, asked, model, batches, begin)
        data = Parts(batches, schedule.parts).at_epoch
        key = key_of(
            start=begin, recipe=schedule.recipe.as_dict(), parts=schedule.parts,
            seed=arguments.seed, data=shape_of(data), augment=augment,
        )  # fmt: skip
        history = train_(
            model,
            data,
            recipe=schedule.recipe,
            folder=run.folder / "training" / key[:12],
            seed=arguments.seed,
            progress=epochs_watch(watch, "train"),
            accelerator={"cpu": True} if arguments.device == "cpu" else None,
        )
        meter = Meter(run, test.batches(MEASURE_BATCH), watch, None)
        meter.measure("trained", model)
        file = run.folder / f"{arguments.network.replace(':', '-')}.safetensors"
        facts = _facts(arguments, schedule, history, meter, len(train))
        made = {"snacs": json.dumps({k: facts[k] for k in ("network", "recipe", "seed", "passes")})}
        save_weights(model, file, normalisation=normalisation, metadata=made)
        facts |= {"file": str(file), "sha256": hashlib.sha256(file.read_bytes()).hexdigest()}
        write_json(run.folder / "train.json", facts)
    _show(arguments, facts)


def _recipe(arguments: Arguments) -> Recipe:
    """The recipe as asked for; a budget scales it later, when the machine's pace is known."""
    if arguments.epochs is not None and arguments.budget is not None:
        raise InputError("Give --epochs or --budget, not both.")
    for name in ("epochs", "batch_size", "train_images", "test_images"):
        value = getattr(arguments, name)
        if value is not None and value < 1:
            raise InputError(f"--{name.replace('_', '-')} must be at least 1. Got {value}.")
    if arguments.budget is not None:
        seconds_of(arguments.budget)  # a mistake is told before anything is loaded
    own = f"train-{arguments.network}"
    found = recipe(arguments.recipe or (own if own in RECIPES else "scratch"))
    if found.distillation:
        raise InputError(
            f"The recipe {arguments.recipe!r} learns from a dense network, so it is for retraining "
            "(snacs prune --retrain, snacs compare). Give another one, such as scratch."
        )
    if arguments.epochs is not None:
        found = scaled(found, arguments.epochs)
    if arguments.rate is not None:
        found = replace(found, learning_rate=arguments.rate)
    found = replace(found, channels_last=arguments.channels_last)
    return found if arguments.batch_size is None else replace(found, batch=arguments.batch_size)


def _start(arguments: Arguments) -> tuple[nn.Module, Entry | None, Normalisation | None]:
    """The network to train, and how its images are normalised."""
    build, entry = network(arguments.network)
    model = seeded(build, arguments.seed).to(device_of(arguments.device))
    given = typed_normalisation(arguments)
    if arguments.start is None:
        return model, entry, given or (None if entry is None else entry.training)
    load_weights_(model, arguments.start)
    return model, entry, given or normalisation_of(arguments.start, entry)


def _some(
    arguments: Arguments,
    split: str,
    entry: Entry | None,
    normalisation: Normalisation | None,
    count: int | None,
) -> Images:
    images = open_data(
        arguments.data, split=split, entry=entry, normalisation=normalisation, size=arguments.size
    )
    if count is None or count >= len(images):
        return images
    return (
        images.balanced(count, seed=0) if split == "train" else images.subset(slice(-count, None))
    )


def _schedule(
    run: Run, arguments: Arguments, asked: Recipe, model: nn.Module, batches: Batches, begin: str
) -> Schedule:
    """What is trained; with a budget it is decided once and kept, so that a resumed run repeats."""
    if arguments.budget is None:
        return Schedule(asked, 1)
    images = len(batches.images)

    def fill(folder: Path) -> None:
        found = pace(model, batches, asked)
        fitted = fit(asked, seconds=seconds_of(arguments.budget), images=images, pace=found)
        facts = {"recipe": fitted.recipe.as_dict(), "parts": fitted.parts, "pace": found}
        write_json(folder / "schedule.json", facts)

    key = key_of(
        start=begin, recipe=asked.as_dict(), budget=arguments.budget, images=images,
        seed=arguments.seed,
    )  # fmt: skip
    kept = read_json(run.once("schedule", key, fill) / "schedule.json")
    return Schedule(Recipe(**kept["recipe"]), kept["parts"])


def _facts(
    arguments: Arguments, schedule: Schedule, history: History, meter: Meter, images: int
) -> dict[str, Any]:
    return {
        "network": arguments.network,
        "data": arguments.data,
        "from": None if arguments.start is None else str(arguments.start),
        "recipe": {**schedule.recipe.as_dict(), "name": arguments.recipe},
        "parts": schedule.parts,
        "passes": schedule.recipe.epochs / schedule.parts,
        "images": images,
        "seed": arguments.seed,
        "seconds": sum(row.seconds for row in history.rows),
        "resumed": history.resumed,
        "accuracy": meter.seen["trained"]._asdict(),
        "epochs": [row.__dict__ for row in history.rows],
        "notes": list(history.notes),
        "versions": versions(),
    }


def _show(arguments: Arguments, facts: dict[str, Any]) -> None:
    every = max(1, len(facts["epochs"]) // 20)
    shown = [row for i, row in enumerate(facts["epochs"], 1) if i % every == 0 or i == 1]
    rows = [
        {
            "epoch" if facts["parts"] == 1 else f"1/{facts['parts']} epoch": row["epoch"],
            "loss": row["loss"],
            "training accuracy %": row["accuracy"],
            "rate": row["learning_rate"],
            "seconds": round(row["seconds"], 1),
        }
        for row in shown
    ]
    found = facts["accuracy"]
    out(
        arguments,
        facts,
        terminal.cost_table(f"{arguments.network} on {arguments.data}", rows),
        f"Test accuracy {found['fraction']:.2%} ± {found['error']:.2%} on {found['n']} images "
        f"after {facts['passes']:.3g} epochs in {facts['seconds'] / 60:.1f} minutes.",
    )
    for note in facts["notes"]:
        say(arguments, f"Note: {note}")
    say(arguments, f"Weights: {facts['file']}\nSHA-256: {facts['sha256']}")

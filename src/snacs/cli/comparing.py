"""``snacs compare``: methods side by side under equal terms."""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import Any

import torch

from snacs.cli.inputs import Inputs, open_inputs, plain, run_folder
from snacs.cli.parser_shared import fraction
from snacs.cli.showing import out, say
from snacs.config import PRESETS
from snacs.errors import InputError
from snacs.experiments.cells import NAMES, Bench
from snacs.experiments.compare import compare, reference_of, summary
from snacs.experiments.material import Material
from snacs.experiments.sharing import mark
from snacs.files import write_json
from snacs.jobs import versions
from snacs.reporting import terminal
from snacs.reporting.progress import watching
from snacs.training import Recipe, scaled
from snacs.training import recipe as recipe_named

Arguments = argparse.Namespace
FEW = 1000
"""Below so many test images the divergence from the dense outputs is shown too."""
BRIEF = 2
"""Epochs up to which the recipe ``brief`` is the better one (docs/research.md)."""


def compare_methods(arguments: Arguments) -> None:
    """Make all cells, or read those that are there, and show them in one table."""
    targets, methods = fractions(arguments.targets, "--targets"), arguments.methods.split(",")
    if arguments.against is not None and arguments.against not in methods:
        raise InputError(f"--against must be one of {', '.join(methods)}. Got {arguments.against}.")
    inputs = open_inputs(arguments)
    material = material_of(arguments, inputs)
    recipe = recipe_of(arguments)
    folder = run_folder(arguments, "compare")
    mark(folder, arguments=plain(arguments))
    with watching(not arguments.quiet) as watch:
        bench = Bench(
            material,
            folder,
            watch,
            recipe=recipe,
            start=arguments.start,
            jobs=arguments.jobs,
            stages=arguments.stages.split(",") if arguments.stages else None,
        )
        cells = compare(
            bench, targets=targets, methods=methods, seeds=arguments.seeds, seed=arguments.seed
        )
        rows = summary(cells, against=arguments.against)
        dense = bench.dense_measured.facts()
    facts = {
        "dense": dense["accuracy"],
        "dense_error": dense["error"],
        "images": dense["n"],
        "classes": len(material.classes),
        "outputs": int(bench.dense[0].shape[1]),
        "half": material.half,
        "against": reference_of(methods, arguments.against),
        "recipe": None if recipe is None else {**recipe.as_dict(), "start": arguments.start},
        "cells": rows,
        "by_seed": [cell.as_dict() for cell in cells],
        "versions": versions(),
    }
    write_json(folder / "compare.json", facts)
    out(arguments, facts, *tables(facts, bench.stages))
    if any(name.startswith("mint") for name in methods):
        say(arguments, "mint scores groups of filters (G = 16); the others single filters.")
    say(arguments, f"{folder / 'compare.json'} holds every cell.")


def tables(facts: dict[str, Any], stages: tuple[str, ...]) -> list[Any]:
    """Accuracies, then paired differences from the reference."""
    shown, differences = [], []
    for row in facts["cells"]:
        cells: dict[str, Any] = {"method": row["method"], "target %": row["target"]}
        cells |= {"weights gone %": row["pruned"], "MACs gone %": row["macs"]}
        cells |= {f"{NAMES.get(stage, stage)} %": row[stage] for stage in stages}
        cells["± %"] = row["error"]
        if facts["classes"] < facts["outputs"]:
            cells[f"of {facts['classes']} classes %"] = row["among"][stages[-1]][0]
        shown.append(cells)
        apart: dict[str, Any] = {"method": row["method"], "target %": row["target"]}
        for stage in stages:
            mean, error = row["differences"][stage]
            apart[NAMES.get(stage, stage)] = f"{mean * 100:+.2f} ± {error * 100:.2f}"
        differences.append(apart)
    seeds = facts["cells"][0]["seeds"]
    words = f"mean of {seeds} seeds; " if seeds > 1 else ""
    half = "" if facts["half"] == "all" else f" (half: {facts['half']})"
    title = f"Accuracy on {facts['images']} test images{half}; {words}dense {facts['dense']:.2%}"
    beside = facts["against"]
    found = [
        terminal.cost_table(title, shown),
        terminal.cost_table(f"Points better than {beside}, paired standard error", differences),
    ]
    if facts["images"] < FEW:
        words = f"Mean KL(dense ‖ pruned) in nats ± paired error of the difference from {beside}"
        found.append(terminal.cost_table(words, _divergences(facts["cells"], stages)))
    return found


def _divergences(rows: list[dict[str, Any]], stages: tuple[str, ...]) -> list[dict[str, Any]]:
    """Finer than accuracy where test images are few."""
    shown = []
    for row in rows:
        cells: dict[str, Any] = {"method": row["method"], "target %": row["target"]}
        for stage in stages:
            mean, error = row["divergence"][stage][0], row["divergence_differences"][stage][1]
            cells[stage] = "–" if mean is None else f"{mean:.4f} ± {error or 0:.4f}"
        shown.append(cells)
    return shown


def material_of(arguments: Arguments, inputs: Inputs) -> Material:
    """Network and images as experiments take them."""
    for name in ("test_images", "train_images", "batch_size"):
        value = getattr(arguments, name)
        if value is not None and value < 1:
            words = name.replace("_", "-")
            raise InputError(f"--{words} must be at least 1. Got {value}.")
    device = getattr(arguments, "device", "cpu")
    count = int(arguments.images or PRESETS["default"].count)
    cifar = inputs.data.split(":")[0] == "cifar10"
    half = arguments.half or ("report" if cifar else "all")
    return Material(
        model=inputs.model.to(device_of(device)),
        calibration=lambda seed: inputs.calibration_batches(count, seed=seed),
        bn=lambda seed: inputs.bn_batches(count, seed=seed),
        exchange=lambda seed, some: inputs.exchange_batches(some, seed=seed),
        train=lambda seed, batch: (
            inputs.train_batches(batch, seed=seed, count=arguments.train_images).at_epoch
        ),
        test=inputs.test_half(half, arguments.test_images),
        half=half,
        classes=sorted(inputs.test.classes),
        count=count,
        ignore=arguments.ignore,
        network=arguments.network,
        data=inputs.data,
        device=device,
    )


def device_of(name: str) -> torch.device:
    """A device by name, if it is there."""
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise InputError(f"There is no device {name!r}: give cpu, cuda or cuda:1.") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise InputError("--device cuda: this torch sees no CUDA device. Use --device cpu.")
    return device


def recipe_of(arguments: Arguments) -> Recipe | None:
    """How to retrain, or None."""
    name = arguments.recipe or ("brief" if arguments.epochs <= BRIEF else "short")
    named = recipe_named(name)
    if arguments.epochs < 0:
        raise InputError(f"--epochs must not be negative. Got {arguments.epochs}.")
    if not arguments.epochs:
        return None
    found = scaled(named, arguments.epochs)
    if found.note:
        say(arguments, f"Recipe {name}: {found.note}")
    found = replace(found, channels_last=arguments.channels_last)
    return found if arguments.batch_size is None else replace(found, batch=arguments.batch_size)


def fractions(text: str, option: str) -> list[float]:
    """Numbers between commas, 0.7 or 70%, each strictly between 0 and 1."""
    try:
        found = [fraction(word) for word in text.split(",")]
    except argparse.ArgumentTypeError:
        raise InputError(f"{option} takes fractions: 0.4,0.6. Got {text!r}") from None
    if not all(0 < value < 1 for value in found):
        raise InputError(f"{option} takes fractions strictly between 0 and 1. Got {text!r}.")
    return found

"""What each command does: open the inputs, call the library, show the outcome."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from snacs.cli.benching import bench_network
from snacs.cli.comparing import compare_methods
from snacs.cli.inputs import Inputs, example, open_inputs, open_model, options, plain, run_folder
from snacs.cli.network_files import compact_network, export_network
from snacs.cli.reproducing import reproduce
from snacs.cli.showing import figure, report
from snacs.cli.showing import out as _out
from snacs.cli.showing import say as _say
from snacs.cli.showing import show_plan as _show_plan
from snacs.cli.training import train_network
from snacs.config import PRESETS
from snacs.errors import InputError, RunFolderError
from snacs.experiments.demo import demo
from snacs.files import write_json
from snacs.network.layers import find_structure
from snacs.network.masking import bake_
from snacs.pipeline import plan, prune
from snacs.reporting import terminal
from snacs.reporting.progress import watching
from snacs.store import Run, read_run
from snacs.training import Recipe, scaled
from snacs.training import recipe as recipe_named
from snacs.zoo.download import fetch_cifar10
from snacs.zoo.weights import save_weights

Arguments = argparse.Namespace


def show_layers(arguments: Arguments) -> None:
    model, entry = open_model(arguments)
    structure = find_structure(model, example(arguments, entry), ignore=arguments.ignore)
    _out(arguments, asdict(structure), terminal.structure_table(structure))


def make_plan(arguments: Arguments) -> None:
    inputs, chosen = open_inputs(arguments), options(arguments)
    with Run(run_folder(arguments)) as run:
        run.note(arguments=plain(arguments))
        made = plan(
            inputs.model,
            inputs.calibration_batches(_count(arguments), seed=arguments.seed),
            target=arguments.target,
            tolerance=arguments.tolerance,
            budget=arguments.budget,
            preset=arguments.preset,
            ignore=arguments.ignore,
            exchange_images=inputs.exchange_batches(chosen.get("exchange"), seed=arguments.seed),
            run=run,
            seed=arguments.seed,
            jobs=arguments.jobs,
            progress=not arguments.quiet,
            **chosen,
        )
        _show_plan(arguments, made)
        _say(arguments, f"The plan is in {run.folder / 'plan'}.")


def prune_network(arguments: Arguments) -> None:
    """``snacs prune``; ``snacs retrain`` is the same with the facts of an earlier run."""
    inputs, chosen = open_inputs(arguments), options(arguments)
    train, recipe = _training(arguments, inputs)
    count = _count(arguments)
    with Run(run_folder(arguments)) as run:
        run.note(arguments=plain(arguments))
        result = prune(
            inputs.model,
            inputs.calibration_batches(count, seed=arguments.seed),
            target=arguments.target,
            tolerance=arguments.tolerance,
            budget=arguments.budget,
            preset=arguments.preset,
            ignore=arguments.ignore,
            bn_images=inputs.bn_batches(count, seed=arguments.seed),
            exchange_images=inputs.exchange_batches(chosen.get("exchange"), seed=arguments.seed),
            train=train,
            recipe=recipe,
            test=inputs.test_batches(),
            run=run,
            seed=arguments.seed,
            jobs=arguments.jobs,
            progress=not arguments.quiet,
            **chosen,
        )
        facts = result.facts()
        bake_(result.model)
        file = run.folder / "pruned.safetensors"
        made = json.dumps({"network": arguments.network, "pruned": facts["pruned"]})
        save_weights(
            result.model,
            file,
            normalisation=inputs.normalisation,
            metadata={"snacs": made},
        )
        write_json(run.folder / "result.json", facts)
        _show_plan(arguments, result.plan, facts)
        _say(arguments, f"Pruned weights: {file}\nEverything about this run: {run.folder}")


def retrain(arguments: Arguments) -> None:
    earlier = read_run(arguments.run).get("arguments")
    known = earlier if isinstance(earlier, dict) else {}
    if known.get("command") != "prune" or not known.get("weights"):
        raise RunFolderError(f"{arguments.run} is not the run folder of a `snacs prune`.")
    if arguments.epochs < 1:
        raise InputError(f"--epochs must be at least 1. Got {arguments.epochs}.")
    known = {**known, "weights": Path(known["weights"]), "run": arguments.run}
    for name in ("recipe", "batch_size", "json", "quiet"):
        known[name] = getattr(arguments, name)
    prune_network(argparse.Namespace(**{**known, "retrain": arguments.epochs}))


def fetch_data(arguments: Arguments) -> None:
    with watching(not arguments.quiet) as watch:
        fetched = fetch_cifar10(
            arguments.to,
            url=arguments.url,
            source=arguments.source,
            progress=lambda done, total: watch("download", done, total or done),
        )
    _out(arguments, asdict(fetched), f"CIFAR-10 is in {fetched.folder} ({fetched.checked}).")


def run_demo(arguments: Arguments) -> None:
    with watching(not arguments.quiet) as watch:
        results = demo(arguments.run, seeds=arguments.seeds, target=arguments.target, watch=watch)
    facts = [result.facts() for result in results]
    parts = [terminal.plan_table(results[0].plan)]
    parts += [terminal.summary_table(found) for found in facts]
    _out(arguments, facts, *parts)
    dense, retrained = (
        sum(found["accuracy"][step]["fraction"] for found in facts) / len(facts)
        for step in ("dense", "retrained")
    )
    gone = sum(found["pruned"] for found in facts) / len(facts)
    _say(
        arguments,
        f"{gone:.1%} of the weights are gone; the pruned network reads {retrained:.2%} of the test "
        f"images, the dense one {dense:.2%} (mean of {len(facts)} seed{'s' * (len(facts) > 1)}).\n"
        f"Files: {arguments.run}/seed-*. See why, layer by layer: "
        f"snacs report {arguments.run}/seed-0",
    )


COMMANDS: dict[str, Callable[[Arguments], int | None]] = {
    "layers": show_layers,
    "plan": make_plan,
    "prune": prune_network,
    "retrain": retrain,
    "compare": compare_methods,
    "train": train_network,
    "report": report,
    "figure": figure,
    "compact": compact_network,
    "export": export_network,
    "bench": bench_network,
    "data": fetch_data,
    "reproduce": reproduce,
    "demo": run_demo,
}


def _training(arguments: Arguments, inputs: Inputs) -> tuple[Any, Recipe]:
    """What to retrain on (None: not at all) and how."""
    found = recipe_named(arguments.recipe)
    if arguments.retrain < 0:
        raise InputError(f"--retrain must not be negative. Got {arguments.retrain}.")
    if arguments.batch_size < 1:
        raise InputError(f"--batch-size must be at least 1. Got {arguments.batch_size}.")
    epochs = max(arguments.retrain, 1)
    recipe = replace(scaled(found, epochs), batch=arguments.batch_size)
    if not arguments.retrain:
        return None, recipe
    return inputs.train_batches(arguments.batch_size, seed=arguments.seed).at_epoch, recipe


def _count(arguments: Arguments) -> int:
    return int(arguments.images or PRESETS["default"].count)

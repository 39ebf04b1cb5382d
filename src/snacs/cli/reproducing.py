"""``snacs reproduce``: the paper's experiments as commands."""

from __future__ import annotations

import argparse
import shlex
import time
from collections.abc import Callable
from pathlib import Path

from snacs.cli.comparing import fractions, material_of, recipe_of
from snacs.cli.inputs import open_inputs
from snacs.cli.parser_reproduce import ALONE
from snacs.cli.reproducing_alone import estimator, runtime
from snacs.cli.showing import out, say
from snacs.cli.timing import OutOfTime, seconds_of, until
from snacs.errors import InputError
from snacs.experiments.cells import Bench
from snacs.experiments.curves import reproduce_curves
from snacs.experiments.drawing import check_figures
from snacs.experiments.layers import reproduce_layers
from snacs.experiments.main import reproduce_main
from snacs.experiments.masks import reproduce_masks
from snacs.experiments.outcome import Outcome, markdown
from snacs.experiments.phi import TARGETS, reproduce_phi
from snacs.experiments.saved_share import reproduce_saved_share
from snacs.experiments.sensitivity import reproduce_sensitivity
from snacs.experiments.sharing import mark
from snacs.experiments.single_shot import reproduce_single_shot
from snacs.files import write_file, write_json
from snacs.jobs import versions
from snacs.reporting import terminal
from snacs.reporting.progress import Watch, watching
from snacs.store import Run

Arguments = argparse.Namespace


def reproduce(arguments: Arguments) -> None:
    """Run one experiment and write what it found into its run folder."""
    check_figures()
    what = arguments.what
    began = time.perf_counter()
    limit = None if arguments.budget is None else seconds_of(arguments.budget)
    with watching(not arguments.quiet) as shown:
        watch = until(limit, shown)
        try:
            if what in ALONE:
                folder = arguments.run or Path("runs") / f"reproduce-{what}"
                with Run(folder) as run:
                    alone = {"estimator": estimator, "runtime": runtime}[what]
                    outcome, parts = alone(run, arguments, watch)
            else:
                folder, outcome = _outcome(arguments, watch)
                parts = [terminal.cost_table(title, rows) for title, rows in outcome.tables.items()]
        except OutOfTime as stop:
            say(arguments, f"{stop} The same command goes on where it stopped.")
            return
    facts = {**outcome.facts, "versions": versions(), "seed": arguments.seed}
    facts |= {"trials": arguments.trials} if what in ALONE else {"differs": list(outcome.differs)}
    facts["minutes"] = (time.perf_counter() - began) / 60
    write_json(folder / f"{what}.json", facts)
    files = [folder / f"{what}.json", *outcome.figures]
    if what not in ALONE:
        typed = markdown(outcome, _typed(arguments), facts)
        write_file(folder / f"{what}.md", typed.encode())
        files.append(folder / f"{what}.md")
    out(arguments, facts, *parts)
    for sentence in outcome.differs:
        say(arguments, f"Differs: {sentence}")
    say(arguments, f"{', '.join(map(str, files))}; {facts['minutes']:.1f} minutes")


def _outcome(arguments: Arguments, watch: Watch) -> tuple[Path, Outcome]:
    if arguments.what != "single-shot":
        return _on_network(arguments, watch)
    folder = Path(arguments.run or Path("runs") / "reproduce-single-shot")
    results = arguments.results
    if results is None:
        results = sorted(Path("runs").glob("reproduce-*/main.json"))
    mark(folder, arguments={"command": "reproduce"})
    arguments.typed = vars(arguments)
    return folder, reproduce_single_shot(results, folder)


def _on_network(arguments: Arguments, watch: Watch) -> tuple[Path, Outcome]:
    network, run = EXPERIMENTS[arguments.what]
    arguments.network = arguments.network or network
    for name in ("size", "mean", "std"):
        setattr(arguments, name, None)
    arguments.ignore = []
    typed = vars(arguments).copy()
    if arguments.what == "main":  # the paper's figures are on all test images
        arguments.half = arguments.half or "all"
    inputs = open_inputs(arguments)
    material = material_of(arguments, inputs)
    arguments.typed = typed
    folder = Path(arguments.run or Path("runs") / f"reproduce-{arguments.network}")
    mark(folder, arguments={"command": "reproduce", "network": arguments.network})
    start = "own" if arguments.what == "main" else "repaired"
    bench = Bench(
        material, folder, watch, recipe=recipe_of(arguments), start=start, jobs=arguments.jobs
    )
    return folder, run(bench, arguments)


def _main(bench: Bench, arguments: Arguments) -> Outcome:
    presets = arguments.presets.split(",")
    return reproduce_main(bench, target=_target(arguments), presets=presets, seed=arguments.seed)


def _phi(bench: Bench, arguments: Arguments) -> Outcome:
    targets = TARGETS if arguments.target is None else fractions(arguments.target, "--target")
    return reproduce_phi(bench, targets=targets, seed=arguments.seed)


def _layers(bench: Bench, arguments: Arguments) -> Outcome:
    return reproduce_layers(bench, target=_target(arguments), seed=arguments.seed)


def _sensitivity(bench: Bench, arguments: Arguments) -> Outcome:
    return reproduce_sensitivity(bench, target=_target(arguments), seed=arguments.seed)


def _saved_share(bench: Bench, arguments: Arguments) -> Outcome:
    return reproduce_saved_share(
        bench, target=_target(arguments), convolutions=_convolutions(arguments, (30, 46)),
        seed=arguments.seed,
    )  # fmt: skip


def _masks(bench: Bench, arguments: Arguments) -> Outcome:
    return reproduce_masks(
        bench, target=_target(arguments), convolutions=_convolutions(arguments, (35, 46)),
        seed=arguments.seed,
    )  # fmt: skip


def _curves(bench: Bench, arguments: Arguments) -> Outcome:
    presets = arguments.presets.split(",")
    target = _target(arguments)
    return reproduce_curves(bench, target=target, presets=presets, seed=arguments.seed)


def _convolutions(arguments: Arguments, usual: tuple[int, ...]) -> tuple[int, ...]:
    if arguments.convolutions is None:
        return usual
    try:
        return tuple(int(word) for word in arguments.convolutions.split(","))
    except ValueError:
        raise InputError(
            f"--convolutions takes numbers: 35,46. Got {arguments.convolutions!r}."
        ) from None


def _target(arguments: Arguments) -> float | None:
    return None if arguments.target is None else fractions(arguments.target, "--target")[0]


def _typed(arguments: Arguments) -> str:
    """The command line without what belongs to this machine or to showing."""
    said = ("network", "target", "presets", "epochs", "recipe", "images", "train_images", "half")
    words = ["snacs", "reproduce", arguments.what]
    for name in (*said, "test_images", "batch_size", "convolutions", "seed"):
        value = arguments.typed[name]
        if value not in (None, _UNSAID.get(name)):
            words += [f"--{name.replace('_', '-')}", str(value)]
    words += ["--channels-last"] if arguments.channels_last else []
    return shlex.join(words)


_UNSAID = {"seed": 0, "epochs": 0, "presets": "default,paper"}

EXPERIMENTS: dict[str, tuple[str, Callable[[Bench, Arguments], Outcome]]] = {
    "main": ("resnet56", _main),
    "phi": ("vgg16", _phi),
    "layers": ("resnet56", _layers),
    "sensitivity": ("resnet56", _sensitivity),
    "saved-share": ("resnet56", _saved_share),
    "masks": ("resnet56", _masks),
    "curves": ("resnet56", _curves),
}
"""By name: the network of the paper's experiment, and what runs it."""

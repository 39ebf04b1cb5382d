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
from snacs.experiments.cells import Bench
from snacs.experiments.main import reproduce_main
from snacs.experiments.outcome import Outcome, markdown
from snacs.experiments.sharing import mark
from snacs.files import write_file, write_json
from snacs.jobs import versions
from snacs.reporting import terminal
from snacs.reporting.progress import Watch, watching
from snacs.store import Run

Arguments = argparse.Namespace


def reproduce(arguments: Arguments) -> None:
    """Run one experiment and write what it found into its run folder."""
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
                folder, outcome = _on_network(arguments, watch)
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
    folder = Path(arguments.run or Path("runs") / f"reproduce-{arguments.what}-{arguments.network}")
    mark(folder, arguments={"command": "reproduce", "network": arguments.network})
    bench = Bench(
        material, folder, watch, recipe=recipe_of(arguments), start="own", jobs=arguments.jobs
    )
    return folder, run(bench, arguments)


def _main(bench: Bench, arguments: Arguments) -> Outcome:
    presets = arguments.presets.split(",")
    return reproduce_main(bench, target=_target(arguments), presets=presets, seed=arguments.seed)


def _target(arguments: Arguments) -> float | None:
    return None if arguments.target is None else fractions(arguments.target, "--target")[0]


def _typed(arguments: Arguments) -> str:
    """The command line without what belongs to this machine or to showing."""
    said = ("network", "target", "presets", "epochs", "recipe", "images", "train_images", "half")
    words = ["snacs", "reproduce", arguments.what]
    for name in (*said, "test_images", "batch_size", "seed"):
        value = arguments.typed[name]
        if value not in (None, _UNSAID.get(name)):
            words += [f"--{name.replace('_', '-')}", str(value)]
    return shlex.join(words)


_UNSAID = {"seed": 0, "epochs": 0, "recipe": "brief", "presets": "default,paper"}

EXPERIMENTS: dict[str, tuple[str, Callable[[Bench, Arguments], Outcome]]] = {
    "main": ("resnet56", _main),
}
"""By name: the network of the paper's experiment, and what runs it."""

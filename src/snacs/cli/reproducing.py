"""``snacs reproduce``: the paper's experiments as commands."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from snacs.cli.showing import out, say
from snacs.experiments.drawing import draw_estimator, draw_runtime
from snacs.experiments.estimator import reproduce_estimator
from snacs.experiments.runtime import GROUPS, reproduce_runtime
from snacs.files import write_json
from snacs.jobs import versions
from snacs.reporting import terminal
from snacs.reporting.progress import Watch, watching
from snacs.store import Run

Arguments = argparse.Namespace
Found = tuple[dict[str, Any], list[Any], list[Path]]


def reproduce(arguments: Arguments) -> None:
    """Run one experiment and write what it found into its run folder."""
    folder = arguments.run or Path("runs") / f"reproduce-{arguments.what}"
    began = time.perf_counter()
    with Run(folder) as run, watching(not arguments.quiet) as watch:
        facts, tables, figures = EXPERIMENTS[arguments.what](run, arguments, watch)
    facts |= {"versions": versions(), "seed": arguments.seed, "trials": arguments.trials}
    facts["minutes"] = (time.perf_counter() - began) / 60
    write_json(folder / f"{arguments.what}.json", facts)
    out(arguments, facts, *tables)
    files = ", ".join(str(path) for path in [folder / f"{arguments.what}.json", *figures])
    say(arguments, f"{files}; {facts['minutes']:.1f} minutes")


def _estimator(run: Run, arguments: Arguments, watch: Watch) -> Found:
    found = reproduce_estimator(run, trials=arguments.trials, seed=arguments.seed, watch=watch)
    short = {" mean": "", " mse": "", "floor ": "", "projection": "p", "singletons": "alone"}
    short |= {"published": "paper", " one": "", " exp": " exp"}
    tables: list[Any] = []
    for name, rows in found.items():
        kept = " mean" if name in ("convergence", "condition") else " mse"
        shown = []
        for row in rows:
            cells: dict[str, Any] = {
                key: row[key] for key in ("law", "dims of Z", "dims", "N") if key in row
            }
            cells |= {"truth": row["truth"]} if kept == " mean" else {}
            for key in sorted(row):
                narrow = name == "dimensions" and "exp" in key  # in the JSON; too wide here
                if not narrow and key.endswith((kept, "singletons")):
                    label = key
                    for long, words in short.items():
                        label = label.replace(long, words)
                    cells[label] = float(row[key])
            shown.append(cells)
        what = "mean estimates" if kept == " mean" else "mean squared errors, the truth is 0"
        tables.append(terminal.cost_table(f"{name}: {what}", shown))
    tables.append(
        "full and edges: the sum over all cells and over observed ones, φ = 1 unless 'exp' "
        "(exp(−‖act‖²/2)); p: p-stable projection; alone: samples alone in their cell of Z."
    )
    return {"tables": found}, tables, draw_estimator(found, run.folder)


def _runtime(run: Run, arguments: Arguments, watch: Watch) -> Found:
    found = reproduce_runtime(run, trials=arguments.trials, seed=arguments.seed, watch=watch)
    by_method: dict[str, dict[int, float]] = {}
    for row in found["rows"]:
        by_method.setdefault(row["method"], {})[row["groups"]] = row["seconds"]
    shown = [
        {"seconds": method, **{f"G = {group}": seconds[group] for group in GROUPS}}
        for method, seconds in by_method.items()
    ]
    figures = draw_runtime(found["rows"], run.folder)
    tables = [
        terminal.cost_table("512 → 512 filters, 2,000 samples, 1 thread", shown),
        f"One SVM fit and prediction: {found['svm']:.2f} s (published: {found['svm_published']} s)",
    ]
    return found, tables, figures


EXPERIMENTS: dict[str, Callable[[Run, Arguments, Watch], Found]] = {
    "estimator": _estimator,
    "runtime": _runtime,
}

"""Experiments of ``snacs reproduce`` that need no network."""

from __future__ import annotations

import argparse
from typing import Any

from snacs.experiments.drawing import draw_estimator, draw_runtime
from snacs.experiments.estimator import reproduce_estimator
from snacs.experiments.outcome import Outcome
from snacs.experiments.runtime import GROUPS, reproduce_runtime
from snacs.reporting import terminal
from snacs.reporting.progress import Watch
from snacs.store import Run

Arguments = argparse.Namespace
Found = tuple[Outcome, list[Any]]


def estimator(run: Run, arguments: Arguments, watch: Watch) -> Found:
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
    figures = draw_estimator(found, run.folder)
    return Outcome({"tables": found}, {}, figures=figures), tables


def runtime(run: Run, arguments: Arguments, watch: Watch) -> Found:
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
    return Outcome(found, {}, figures=figures), tables

"""Arguments of ``snacs reproduce``; light, since every command builds the parser."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

EXPERIMENTS = ("estimator", "runtime")


def add_reproduce(
    add: Callable[..., argparse.ArgumentParser], *parents: argparse.ArgumentParser
) -> None:
    """The arguments of ``snacs reproduce``."""
    parser = add(
        "reproduce",
        "Repeat an experiment of the paper: JSON, figure (SVG and PNG) and table.",
        "  snacs reproduce estimator\n  snacs reproduce runtime --trials 3\n\n"
        "Interrupted? The same command goes on where it stopped.",
        *parents,
    )
    parser.add_argument("what", choices=EXPERIMENTS, help="which experiment")
    parser.add_argument("--trials", type=int, default=10, metavar="N", help="repetitions (10)")
    parser.add_argument("--seed", type=int, default=0, help="(0)")
    parser.add_argument("--run", type=Path, metavar="FOLDER", help="(runs/reproduce-WHAT)")

"""Arguments that several commands have in common, as parent parsers."""

from __future__ import annotations

import argparse
from pathlib import Path

from snacs.config import ALLOCATIONS, PRESETS, SCORES


def of_network(
    which: str = "zoo name or package.module:factory",
    weights: str = "its trained weights, .safetensors (NET.safetensors or NET-*.safetensors in "
    "$SNACS_WEIGHTS or ~/.cache/snacs/weights)",
) -> argparse.ArgumentParser:
    parent = argparse.ArgumentParser(add_help=False)
    group = parent.add_argument_group("network")
    group.add_argument("network", metavar="NET", help=which)
    group.add_argument("--weights", type=Path, metavar="FILE", help=weights)
    return parent


def of_ignore() -> argparse.ArgumentParser:
    parent = argparse.ArgumentParser(add_help=False)
    parent.add_argument(
        "--ignore",
        action="append",
        default=[],
        metavar="NAME",
        help="layer or pattern to keep whole",
    )
    return parent


def of_data() -> argparse.ArgumentParser:
    parent = argparse.ArgumentParser(add_help=False)
    group = parent.add_argument_group("data")
    group.add_argument(
        "--data",
        metavar="DATA",
        help="digits, cifar10[:folder], a folder of class folders (in train/ and test/ or val/, if "
        "they are divided), or an .npz file with x and y (or x_train, y_train, x_test, …); of "
        "data that is not divided a fifth of each class is held out (what the zoo's network was "
        "trained on)",
    )
    group.add_argument("--images", type=int, metavar="N", help="calibration images (1000)")
    group.add_argument(
        "--size",
        type=int,
        metavar="PIXELS",
        help="side of the images of a folder (the zoo network's; else theirs, if all are equal "
        "squares, or 224)",
    )
    group.add_argument("--mean", metavar="M,M,M", help="normalisation (what the weights carry)")
    group.add_argument("--std", metavar="S,S,S", help="normalisation (what the weights carry)")
    return parent


def of_goal() -> argparse.ArgumentParser:
    parent = argparse.ArgumentParser(add_help=False)
    group = parent.add_argument_group("how far")
    group.add_argument(
        "--target",
        type=fraction,
        metavar="T",
        help="fraction of the weights to remove: 0.7 or 70%%",
    )
    group.add_argument(
        "--tolerance",
        type=fraction,
        metavar="T",
        help="instead: how much of its SVM accuracy a layer may lose; the fraction follows",
    )
    group.add_argument(
        "--budget", choices=["parameters", "macs"], default="parameters", help="what T counts"
    )
    return parent


def of_options() -> argparse.ArgumentParser:
    parent = argparse.ArgumentParser(add_help=False)
    group = parent.add_argument_group("method (nothing here needs to be set)")
    group.add_argument("--preset", choices=list(PRESETS), default="default", help="(default)")
    group.add_argument("--score", choices=SCORES, help="(information; paper: acmi)")
    group.add_argument(
        "--allocation",
        choices=ALLOCATIONS,
        help="how the target is shared out (tempered, whole filters uniform; paper: svm)",
    )
    group.add_argument(
        "--granularity", choices=["connection", "filter"], help="what goes (connection)"
    )
    group.add_argument(
        "--no-repair",
        action="store_true",
        help="mask only: no least squares, no BatchNorm; what stays is then chosen to serve as is",
    )
    group.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="OPTION=VALUE",
        help="any option of snacs.Config, as JSON: --set view=layer --set shifts=8",
    )
    return parent


def of_work() -> argparse.ArgumentParser:
    parent = argparse.ArgumentParser(add_help=False)
    group = parent.add_argument_group("work")
    group.add_argument(
        "--run",
        type=Path,
        metavar="FOLDER",
        help="run folder (runs/NET; compare: runs/compare-NET)",
    )
    group.add_argument("--seed", type=int, default=0, help="(0)")
    group.add_argument("--jobs", type=int, metavar="N", help="worker processes (one per core)")
    return parent


def add_training(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--recipe",
        default="short",
        help="how to retrain, by name (short: the dense network teaches); also brief, scratch and "
        "the paper's train-NET and retrain-NET, squeezed to the epochs",
    )
    parser.add_argument("--batch-size", type=int, default=128, help="images per step (128)")


def of_output() -> argparse.ArgumentParser:
    parent = argparse.ArgumentParser(add_help=False)
    group = parent.add_argument_group("output")
    group.add_argument("--json", action="store_true", help="print facts for machines")
    group.add_argument("--quiet", action="store_true", help="no progress")
    group.add_argument(
        "--no-color", action="store_true", help="no colours, like the variable NO_COLOR"
    )
    return parent


def fraction(text: str) -> float:
    """0.7 or 70%; range is checked where it is used, with a better message."""
    try:
        return float(text[:-1]) / 100 if text.endswith("%") else float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a fraction like 0.7 or 70%") from None

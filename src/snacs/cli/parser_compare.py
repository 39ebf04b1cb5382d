"""Arguments of ``snacs compare``; light, since every command builds the parser."""

from __future__ import annotations

import argparse
from collections.abc import Callable

METHODS = "random,l1,l2,l2-activation,mint,paper,default"


def add_compare(
    add: Callable[..., argparse.ArgumentParser], *parents: argparse.ArgumentParser
) -> None:
    """The arguments of ``snacs compare``."""
    parser = add(
        "compare",
        "Prune by several methods under equal terms and measure each, before and after repair and "
        "retraining.",
        "  snacs compare resnet56 --targets 0.4,0.6,0.7 --methods random,l2,default,paper\n"
        "  snacs compare resnet56 --target 0.686 --epochs 1 --seeds 2 \\\n"
        "      --methods default,paper,l2-uniform,l2-global,l2-activation\n"
        "  snacs compare mypackage.net:build --weights w.safetensors --data images/ --target 0.5\n"
        "\nA method is a preset (default, paper), or a score (information, acmi, mint, l1, l2,\n"
        "l2-activation, random), alone or with an allocation: l2-uniform (also l2), l2-global\n"
        "(one threshold), l2-tempered (between these two), l2-own (SVM curves of that score),\n"
        "l2-default (as much of every layer as the default takes), or torch-pruning (whole\n"
        "filters, at as many MACs as the default; extra torch-pruning). Presets and scores may\n"
        "have other options: default+ridge=0.01, default+shares=0.1:0.2, l2+coupling=0.5. The\n"
        "default chooses otherwise if no repair follows: before repair, compare with\n"
        "default+repair=false. All methods are repaired in the column of that name, this one\n"
        "too.\n\n"
        "Interrupted? The same command goes on where it stopped. Several processes may share\n"
        "a folder.",
        *parents,
    )
    group = parser.add_argument_group("comparison")
    group.add_argument(
        "--target", "--targets", dest="targets", default="0.4,0.6,0.7", metavar="T,T,…",
        help="fractions of the weights to remove (0.4,0.6,0.7)",
    )  # fmt: skip
    group.add_argument("--methods", default=METHODS, metavar="M,M,…", help=f"({METHODS})")
    group.add_argument(
        "--against",
        metavar="M",
        help="differences from this method (default, else paper, else the first)",
    )
    group.add_argument(
        "--stages", metavar="S,S,…",
        help="measure only these of masked, batchnorm, repaired, retrained (all): batchnorm alone "
        "needs no repair and takes a fraction of the time",
    )  # fmt: skip
    group.add_argument("--seeds", type=int, default=1, metavar="N", help="calibration draws (1)")
    add_retraining(group)
    add_test_images(group)


def add_retraining(group: argparse._ArgumentGroup) -> None:
    """How long and how to retrain."""
    group.add_argument("--epochs", type=int, default=0, help="of retraining, every cell (0)")
    group.add_argument(
        "--recipe", help="how to retrain, by name (brief; for more than two epochs short)"
    )
    group.add_argument(
        "--start", choices=["repaired", "masked"], default="repaired",
        help="what retraining starts from (repaired)",
    )  # fmt: skip
    group.add_argument(
        "--train-images", type=int, metavar="N", help="of retraining, balanced over classes (all)"
    )
    group.add_argument("--batch-size", type=int, metavar="N", help="(the recipe's)")
    add_layout(group)


def add_layout(group: argparse._ArgumentGroup) -> None:
    """How images and weights lie in memory while training."""
    group.add_argument(
        "--channels-last", action="store_true",
        help="train with channels innermost: faster on some processors, slower on others",
    )  # fmt: skip


def add_test_images(group: argparse._ArgumentGroup) -> None:
    """Which test images to measure on."""
    group.add_argument(
        "--half", choices=["dev", "report", "all"],
        help="test images to choose on, to report on (CIFAR-10: 0–4,999 and 5,000–9,999; "
        "elsewhere every second one), or all (CIFAR-10: report, elsewhere all; "
        "reproduce main: all)",
    )  # fmt: skip
    group.add_argument("--test-images", type=int, metavar="N", help="at most so many of them (all)")

"""Arguments of ``snacs reproduce``; light, since every command builds the parser."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from snacs.cli.parser_compare import add_layout, add_test_images

ALONE = ("estimator", "runtime")
"""Experiments that need no network."""
ON_NETWORKS = ("main", "phi", "layers", "sensitivity", "saved-share", "masks", "curves")
EXPERIMENTS = (*ALONE, *ON_NETWORKS, "single-shot")


def add_reproduce(
    add: Callable[..., argparse.ArgumentParser], *parents: argparse.ArgumentParser
) -> None:
    """The arguments of ``snacs reproduce``."""
    parser = add(
        "reproduce",
        "Repeat an experiment of the paper: JSON, figure (SVG and PNG) and table.",
        "  snacs reproduce estimator\n  snacs reproduce runtime --trials 3\n"
        "  snacs reproduce main --network resnet56 --epochs 5 --target 0.686\n"
        "  snacs reproduce phi --retrain 1\n  snacs reproduce masks --network resnet56\n"
        "  snacs reproduce single-shot --results runs/reproduce-*/main.json\n\n"
        "Interrupted? The same command goes on where it stopped.",
        *parents,
    )
    parser.add_argument("what", choices=EXPERIMENTS, help="which experiment")
    parser.add_argument(
        "--trials", type=int, default=10, metavar="N", help="of estimator and runtime (10)"
    )
    parser.add_argument("--seed", type=int, default=0, help="(0)")
    parser.add_argument(
        "--run",
        type=Path,
        metavar="FOLDER",
        help="(runs/reproduce-NET, so that experiments share plans; without network: "
        "runs/reproduce-NAME)",
    )
    parser.add_argument(
        "--budget", metavar="TIME", help="stop after 90s, 30m or 2h; the same command goes on"
    )
    _add_network(parser.add_argument_group("experiments on networks"))


def _add_network(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--network", metavar="NET", help="vgg16, resnet56 or resnet50 (resnet56; phi: vgg16)"
    )
    group.add_argument(
        "--weights", type=Path, metavar="FILE",
        help="trained weights (NET.safetensors or NET-*.safetensors in $SNACS_WEIGHTS or "
        "~/.cache/snacs/weights)",
    )  # fmt: skip
    group.add_argument("--data", metavar="DATA", help="(cifar10; ResNet50: $SNACS_DATA/imagenette)")
    group.add_argument(
        "--images", "--calibration", type=int, metavar="N", help="calibration images (1000)"
    )
    group.add_argument(
        "--target", metavar="T", help="fraction of the weights to remove (the paper's)"
    )
    group.add_argument("--presets", default="default,paper", metavar="P,P", help="(default,paper)")
    group.add_argument(
        "--epochs", "--retrain", type=int, default=0, metavar="N", help="of retraining (0)"
    )
    group.add_argument(
        "--recipe", help="how to retrain, by name (brief; for more than two epochs short)"
    )
    group.add_argument("--batch-size", type=int, metavar="N", help="(the recipe's)")
    add_layout(group)
    group.add_argument("--train-images", type=int, metavar="N", help="of retraining (all)")
    add_test_images(group)
    group.add_argument(
        "--convolutions", metavar="N,N", help="of masks (35,46) and saved-share (30,46), from 1"
    )
    group.add_argument(
        "--results", type=Path, nargs="*", metavar="FILE",
        help="main.json files for single-shot (runs/reproduce-*/main.json)",
    )  # fmt: skip
    group.add_argument("--device", default="cpu", help="cpu or cuda (cpu)")
    group.add_argument("--jobs", type=int, metavar="N", help="worker processes (one per core)")

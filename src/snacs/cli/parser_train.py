"""Arguments of ``snacs train``; light, since every command builds the parser."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from snacs.cli.parser_compare import add_layout


def add_train(
    add: Callable[..., argparse.ArgumentParser],
    shown: argparse.ArgumentParser,
) -> None:
    """The arguments of ``snacs train``."""
    parser = add(
        "train",
        "Train a network, from nothing or from weights; a kill loses one epoch at most.",
        "  snacs train resnet56 --data cifar10                        # the paper's 300 epochs\n"
        "  snacs train vgg16 --budget 2h                              # as many as fit\n"
        "  snacs train vgg16 --from vgg16.safetensors --rate 0.05 --recipe scratch --epochs 10\n\n"
        "Interrupted? The same command goes on where it stopped and ends with the same bits.",
        shown,
    )
    parser.add_argument("network", metavar="NET", help="zoo name or package.module:factory")
    data = parser.add_argument_group("data")
    data.add_argument(
        "--data",
        metavar="DATA",
        help="digits, cifar10[:folder], a folder of class folders, or an .npz file with x and y "
        "(what the zoo trains the network on)",
    )
    data.add_argument(
        "--size", type=int, metavar="PIXELS", help="side of the images (the zoo network's)"
    )
    data.add_argument("--mean", metavar="M,M,M", help="normalisation (the zoo's)")
    data.add_argument("--std", metavar="S,S,S", help="normalisation (the zoo's)")
    group = parser.add_argument_group("training")
    group.add_argument("--recipe", metavar="NAME", help="by name (train-NET, else scratch)")
    group.add_argument("--epochs", type=int, metavar="N", help="the recipe scaled to N epochs")
    group.add_argument(
        "--budget", metavar="TIME", help="the recipe scaled to 90s, 30m or 2h on this machine"
    )
    group.add_argument("--rate", type=float, metavar="R", help="learning rate (the recipe's)")
    group.add_argument("--batch-size", type=int, metavar="N", help="(the recipe's)")
    add_layout(group)
    group.add_argument(
        "--from", dest="start", type=Path, metavar="FILE", help="weights to go on from (none)"
    )
    group.add_argument("--train-images", type=int, metavar="N", help="at most so many (all)")
    group.add_argument("--test-images", type=int, metavar="N", help="at most so many (all)")
    group.add_argument("--seed", type=int, default=0, help="(0)")
    group.add_argument("--device", default="cpu", help="cpu or cuda (cpu)")
    group.add_argument("--run", type=Path, metavar="FOLDER", help="run folder (runs/train-NET)")

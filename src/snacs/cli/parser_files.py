"""Arguments of the commands that write networks as files: ``compact`` and ``export``."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

Add = Callable[..., argparse.ArgumentParser]


def add_file_commands(add: Add, *parents: argparse.ArgumentParser) -> None:
    """``parents`` are the arguments of the network and of the output."""
    compact = add(
        "compact",
        "Take dead filters out of a pruned network and write the smaller one as a .snacs file.",
        "  snacs compact resnet56 --weights runs/resnet56/pruned.safetensors -o small.snacs\n"
        "  snacs compact mypackage.net:build --weights w.safetensors --shape 3,64,64 -o s.snacs",
        *parents,
    )
    compact.add_argument(
        "-o", "--out", type=Path, required=True, metavar="FILE", help="the .snacs file"
    )
    compact.add_argument(
        "--fold-batchnorm", action="store_true", help="fold BatchNorm into the layers before it"
    )
    _shape(compact)
    export = add(
        "export",
        "Write a pruned network for others: as ONNX, checked against torch, or plain weights.",
        "  snacs export resnet56 --weights runs/resnet56/pruned.safetensors --onnx net.onnx\n"
        "  snacs export small.snacs --onnx net.onnx\n"
        "  snacs export small.snacs --safetensors weights.safetensors",
        *parents,
    )
    export.add_argument("--onnx", type=Path, metavar="FILE", help="an ONNX file, any batch size")
    export.add_argument(
        "--safetensors", type=Path, metavar="FILE", help="plain dense weights, by key"
    )
    export.add_argument(
        "--no-compact", action="store_true", help="leave dead filters where they are"
    )
    _shape(export)


def _shape(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--shape",
        metavar="C,H,W",
        help="shape of one input image; zoo networks and .snacs files know theirs",
    )

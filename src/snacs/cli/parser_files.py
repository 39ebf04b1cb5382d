"""Arguments of the commands on pruned networks: ``compact``, ``export`` and ``bench``."""

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
    _bench(
        add(
            "bench",
            "Measure a pruned network: dense, compacted, in onnxruntime and in the sparse runtime.",
            "  snacs bench runs/resnet56                      the network of a `snacs prune`\n"
            "  snacs bench small.snacs --batches 1,32\n"
            "  snacs bench vgg16 --masks gamma                the paper's limits, L2 magnitudes\n"
            "  snacs bench resnet56 --masks uniform:0.8 --layers\n"
            "  snacs bench resnet50 --masks runs/resnet50/plan\n\n"
            "All are timed in turn in one run with the same number of threads. The ideal is the\n"
            "ratio of multiply-adds; of_ideal says how much of it was reached. Where there is no\n"
            "speed-up, the last lines say so, and why.",
            *parents,
        )
    )


def _bench(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--masks",
        metavar="MASKS",
        help="prune first: uniform:SHARE or gamma (by L2 magnitude), or the folder of a plan",
    )
    parser.add_argument("--batches", default="1,16,64", metavar="N,N,…", help="(1,16,64)")
    parser.add_argument(
        "--seconds", type=float, default=2.0, help="for each contender and batch size (2)"
    )
    parser.add_argument("--threads", type=int, metavar="N", help="(as many as torch takes)")
    parser.add_argument("--layers", action="store_true", help="show every layer as well")
    parser.add_argument("--no-onnx", action="store_true", help="leave onnxruntime out")
    parser.add_argument("--no-memory", action="store_true", help="do not measure peak memory")
    parser.add_argument(
        "--run", type=Path, metavar="FOLDER", help="keep bench.json there (NET, if it is a run)"
    )
    _shape(parser)


def _shape(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--shape",
        metavar="C,H,W",
        help="shape of one input image; zoo networks and .snacs files know theirs",
    )

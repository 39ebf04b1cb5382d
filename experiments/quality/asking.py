"""What the scripts of this folder share: one comparison on ResNet56, in a run folder of its own."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NoReturn

from torch import Tensor, nn

from snacs.cli import main
from snacs.cli.inputs import open_inputs
from snacs.cli.parser import build_parser


def ask(
    name: str,
    methods: Sequence[str],
    *more: str,
    targets: str = "0.7",
    seeds: int = 1,
    half: str = "dev",
) -> NoReturn:
    """Run ``snacs compare``; what stands on the command line comes last and so wins."""
    command = ["compare", "resnet56", "--half", half, "--methods", ",".join(methods)]
    command += ["--targets", targets, "--seeds", str(seeds), "--run", f"runs/quality-{name}"]
    sys.exit(main([*command, *more, *sys.argv[1:]]))


def calibration_of(network: str, count: int) -> tuple[nn.Module, list[Tensor]]:
    """The trained network in eval mode, and batches of the images that a plan would look at."""
    inputs = open_inputs(build_parser().parse_args(["compare", network]))
    return inputs.model.eval(), [x for x, _ in inputs.calibration_batches(count, seed=0)]

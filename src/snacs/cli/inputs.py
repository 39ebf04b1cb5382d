"""From what a user types to a network and its images."""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch
from torch import nn

from snacs.config import Config
from snacs.errors import InputError
from snacs.network.batches import evaluating, logits_of, move, run
from snacs.zoo.data import Batches, Images, open_data
from snacs.zoo.entry import Entry, Normalisation, seeded
from snacs.zoo.loading import network
from snacs.zoo.weights import load_weights_, normalisation_of

MEASURE_BATCH = 200


@dataclass(frozen=True, eq=False)
class Inputs:
    """A network with its weights, and the data to calibrate, train and test it on."""

    model: nn.Module
    entry: Entry | None
    normalisation: Normalisation | None
    calibration: Images
    train: Images
    test: Images
    augment: str | None

    def calibration_batches(self, count: int, *, seed: int) -> Batches:
        """Balanced calibration images; reading no more than are kept saves decoding."""
        chosen = self.calibration.balanced(min(count, len(self.calibration)), seed=seed)
        return chosen.batches(MEASURE_BATCH)

    def bn_batches(self, count: int, *, seed: int) -> Batches | None:
        """The same images, augmented as in training; None where no augmentation is known."""
        if self.augment is None:
            return None
        chosen = self.calibration.balanced(min(count, len(self.calibration)), seed=seed)
        return chosen.batches(MEASURE_BATCH, shuffle=seed, augment=self.augment)

    def train_batches(self, size: int, *, seed: int) -> Batches:
        whole = len(self.train) >= size
        return self.train.batches(size, shuffle=seed, augment=self.augment, drop_last=whole)

    def test_batches(self, count: int | None = None) -> Batches:
        """All test images, or the last ``count``: on CIFAR-10 those nobody may choose on."""
        few = count is not None and count < len(self.test)
        return (self.test.subset(slice(-(count or 0), None)) if few else self.test).batches(
            MEASURE_BATCH
        )


def open_model(arguments: argparse.Namespace) -> tuple[nn.Module, Entry | None]:
    """The named network, with its weights if they are given."""
    build, entry = network(arguments.network)
    model = seeded(build, seed=0)
    if arguments.weights is not None:
        load_weights_(model, arguments.weights)
    return model.eval(), entry


def open_inputs(arguments: argparse.Namespace) -> Inputs:
    """Network, weights and all splits of the data."""
    if arguments.weights is None:
        raise InputError(
            f"Give the trained weights of {arguments.network}: --weights FILE.safetensors. "
            "Pruning an untrained network would tell nothing."
        )
    model, entry = open_model(arguments)
    given = _normalisation(arguments)
    normalisation = given or normalisation_of(arguments.weights, entry)

    def split(name: str, outputs: int | None = None) -> Images:
        return open_data(
            arguments.data,
            split=name,
            entry=entry,
            normalisation=normalisation,
            outputs=outputs,
            size=arguments.size,
        )

    outputs = None
    if entry is None:
        outputs = _outputs(model, split("calibration"))
    return Inputs(
        model,
        entry,
        normalisation,
        split("calibration", outputs),
        split("train", outputs),
        split("test", outputs),
        augmentation(arguments.data),
    )


def augmentation(data: str) -> str | None:
    """How images of this kind are varied in training; digits must not be flipped."""
    if data == "digits":
        return "shift"
    if data.split(":")[0] == "cifar10":
        return "crop-flip"
    return "resized-crop" if Path(data).is_dir() else None


def example(arguments: argparse.Namespace, entry: Entry | None) -> torch.Tensor:
    """Two random images of the right shape, for a dry run without data."""
    if arguments.shape is not None:
        try:
            shape = tuple(int(side) for side in arguments.shape.split(","))
        except ValueError:
            raise InputError(f"--shape must be C,H,W. Got {arguments.shape!r}.") from None
    elif entry is not None:
        shape = entry.shape
    else:
        raise InputError("Say the shape of one input image: --shape C,H,W, for example 3,224,224.")
    return torch.randn(2, *shape, generator=torch.Generator().manual_seed(0))


def options(arguments: argparse.Namespace) -> dict[str, Any]:
    """Changes to the preset."""
    chosen: dict[str, Any] = {}
    for name in ("score", "allocation", "granularity"):
        if getattr(arguments, name) is not None:
            chosen[name] = getattr(arguments, name)
    if arguments.images is not None:
        chosen["count"] = arguments.images
    if arguments.no_repair:
        chosen.update(repair=False, batchnorm=False)
    for pair in arguments.set:
        name, equals, text = pair.partition("=")
        if not equals:
            raise InputError(f"--set takes OPTION=VALUE. Got {pair!r}.")
        if name not in (known := [field.name for field in fields(Config)]):
            raise InputError(f"--set has no option {name!r}. It takes {', '.join(known)}.")
        try:
            chosen[name] = json.loads(text)
        except json.JSONDecodeError:
            chosen[name] = text
    return chosen


def _outputs(model: nn.Module, images: Images) -> int:
    """How many classes a user's own network knows: labels are checked against them."""
    with evaluating(model):
        batch = next(iter(images.subset(slice(0, 2)).batches(2)))
        return int(logits_of(run(model, move(batch, model))).shape[1])


def _normalisation(arguments: argparse.Namespace) -> Normalisation | None:
    if (arguments.mean is None) != (arguments.std is None):
        raise InputError("Give --mean and --std together.")
    if arguments.mean is None:
        return None
    try:
        mean, std = (
            tuple(float(value) for value in text.split(","))
            for text in (arguments.mean, arguments.std)
        )
    except ValueError:
        raise InputError("--mean and --std take numbers, one per channel: 0.5,0.5,0.5") from None
    return Normalisation(mean, std)

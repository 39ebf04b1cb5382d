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
from snacs.errors import InputError, closest
from snacs.network.batches import evaluating, logits_of, move, run
from snacs.zoo.data import Batches, Images, open_data
from snacs.zoo.data.cifar import data_folder
from snacs.zoo.entry import Entry, Normalisation, seeded
from snacs.zoo.loading import network
from snacs.zoo.weights import find_weights, load_weights_, normalisation_of, weights_folder

MEASURE_BATCH = 200


@dataclass(frozen=True, eq=False)
class Inputs:
    """A network with its weights, and the data to calibrate, train and test it on."""

    model: nn.Module
    normalisation: Normalisation | None
    calibration: Images
    train: Images
    test: Images
    augment: str | None
    data: str = ""

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

    def exchange_batches(self, count: Any, *, seed: int) -> Batches | None:
        """Training images to exchange kernels on, augmented where it is known how.

        None where none are asked for (or not with a number, which the options will say).
        """
        if not isinstance(count, int) or count < 1:
            return None
        chosen = self.train.balanced(min(count, len(self.train)), seed=seed)
        return chosen.batches(MEASURE_BATCH, shuffle=seed, augment=self.augment)

    def test_half(self, half: str, count: int | None = None) -> Batches:
        """Test images to choose on (``dev``), to report on (``report``) or ``all``, at most count.

        CIFAR-10 is cut in the middle; other data may be sorted by class, so every second image
        goes to either half.
        """
        images, whole = self.test, len(self.test)
        if half != "all":
            first = half == "dev"
            middle = whole // 2
            cut = slice(None, middle) if first else slice(middle, None)
            other = slice(0 if first else 1, None, 2)
            images = images.subset(cut if self.data.split(":")[0] == "cifar10" else other)
        if count is not None and count < len(images):
            images = images.subset(slice(-count, None))
        return images.batches(MEASURE_BATCH)

    def train_batches(self, size: int, *, seed: int, count: int | None = None) -> Batches:
        """Training batches of all images, or of ``count`` balanced ones."""
        images = self.train
        if count is not None and count < len(images):
            images = images.balanced(count, seed=0)
        whole = len(images) >= size
        return images.batches(size, shuffle=seed, augment=self.augment, drop_last=whole)

    def test_batches(self) -> Batches:
        """All test images."""
        return self.test.batches(MEASURE_BATCH)


def open_model(arguments: argparse.Namespace) -> tuple[nn.Module, Entry | None]:
    """The named network, with its weights if they are given."""
    build, entry = network(arguments.network)
    model = seeded(build, seed=0)
    if arguments.weights is not None:
        load_weights_(model, arguments.weights)
    return model.eval(), entry


def open_inputs(arguments: argparse.Namespace) -> Inputs:
    """Network, weights and all splits of the data.

    Weights and data that were not named are looked for where the zoo keeps them, and noted in the
    arguments as if they had been typed.
    """
    for name in ("images", "jobs"):
        value = getattr(arguments, name, None)
        if value is not None and value < 1:
            raise InputError(f"--{name} must be at least 1. Got {value}.")
    if arguments.weights is None:
        arguments.weights = find_weights(arguments.network)
    if arguments.weights is None:
        zoo = ":" not in arguments.network
        raise InputError(
            f"Give the trained weights of {arguments.network}: --weights FILE.safetensors"
            + (f", or put {arguments.network}-….safetensors into {weights_folder()} "
               "($SNACS_WEIGHTS)" if zoo else "")
            + ". Pruning an untrained network would tell nothing."
        )  # fmt: skip
    model, entry = open_model(arguments)
    arguments.data = arguments.data or default_data(arguments.network, entry)
    given = typed_normalisation(arguments)
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
    calibration = split("calibration", outputs)
    if given is not None and calibration.normalisation is None:
        raise InputError(
            f"--mean and --std are for pixels (uint8), and {arguments.data} holds floats, which "
            "are used as they are. Leave both out, or save x as uint8."
        )
    return Inputs(
        model,
        normalisation,
        calibration,
        split("train", outputs),
        split("test", outputs),
        augmentation(arguments.data),
        arguments.data,
    )


def default_data(name: str, entry: Entry | None) -> str:
    """The data that a network of the zoo is trained on; ResNet50: Imagenette, if it is there."""
    if entry is not None and entry.data is not None:
        return entry.data
    folder = data_folder() / "imagenette"
    if entry is not None and folder.is_dir():
        return str(folder)
    looked = f" (Looked for {folder}; $SNACS_DATA names the folder of data sets.)" if entry else ""
    raise InputError(
        f"Say which images {name} is for: --data cifar10, a folder of class folders, or an .npz "
        f"file.{looked}"
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
            shape = ()
        if not shape or min(shape) < 1:
            raise InputError(
                f"--shape must be positive numbers like 3,224,224. Got {arguments.shape!r}."
            )
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
            hint = closest(name, known) or f" It takes {', '.join(known)}."
            raise InputError(f"--set has no option {name!r}.{hint}")
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


def typed_normalisation(arguments: argparse.Namespace) -> Normalisation | None:
    """What --mean and --std say, if they say anything."""
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


def run_folder(arguments: argparse.Namespace, kind: str = "") -> Path:
    """The folder given, else one per network, so that the same command finds its own."""
    if arguments.run is not None:
        return Path(arguments.run)
    name = arguments.network.replace(":", "-")
    return Path("runs") / (f"{kind}-{name}" if kind else name)


def plain(arguments: argparse.Namespace) -> dict[str, Any]:
    """The arguments as JSON; paths absolute, so that `snacs retrain` works from anywhere."""
    facts = {
        name: str(value.absolute()) if isinstance(value, Path) else value
        for name, value in vars(arguments).items()
    }
    if Path(facts.get("data") or "").exists() and facts.get("data"):
        facts["data"] = str(Path(facts["data"]).absolute())
    return facts

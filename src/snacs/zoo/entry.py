"""What the zoo knows about a network beside its code: classes, input, normalisation, origin."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from snacs.errors import InputError


@dataclass(frozen=True)
class Normalisation:
    """Per-channel mean and standard deviation of images scaled to [0, 1].

    It belongs to the weights: a network only works on images normalised as in its training.

    >>> Normalisation((0.5,), (0.25,)).as_dict()
    {'mean': [0.5], 'std': [0.25]}
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __post_init__(self) -> None:
        for name in ("mean", "std"):
            object.__setattr__(self, name, _floats(name, getattr(self, name)))
        if len(self.mean) != len(self.std):
            raise InputError(
                "A normalisation needs one mean and one std per channel. "
                f"Got {len(self.mean)} means and {len(self.std)} stds."
            )
        if min(self.std) <= 0:
            raise InputError(f"Every std of a normalisation must be positive. Got {self.std}.")

    def __call__(self, x: Tensor) -> Tensor:
        """Normalise (n, c, h, w) images that lie in [0, 1]."""
        if x.ndim < 2 or x.shape[1] != len(self.mean):
            raise InputError(
                f"The normalisation has {len(self.mean)} channel(s), the images have shape "
                f"{tuple(x.shape)}. Use images with as many channels as the network was trained "
                "on, or give a mean and std with one value per channel."
            )
        shape = (1, -1) + (1,) * (x.ndim - 2)
        mean = torch.tensor(self.mean, dtype=x.dtype, device=x.device).view(shape)
        std = torch.tensor(self.std, dtype=x.dtype, device=x.device).view(shape)
        return (x - mean) / std

    def as_dict(self) -> dict[str, list[float]]:
        return {"mean": list(self.mean), "std": list(self.std)}

    @staticmethod
    def from_dict(value: Any, *, origin: str) -> Normalisation:
        """Read what :meth:`as_dict` gave; ``origin`` names the file in errors."""
        if not isinstance(value, dict) or not {"mean", "std"} <= value.keys():
            raise InputError(
                f"The normalisation in {origin} must be "
                '{"mean": [one number per channel], "std": [...]}. '
                f"Got {value!r}."
            )
        try:
            return Normalisation(value["mean"], value["std"])
        except InputError as error:
            raise InputError(f"The normalisation in {origin} cannot be used. {error}") from error


@dataclass(frozen=True)
class Entry:
    """One network of the zoo.

    Attributes
    ----------
    build : callable without arguments
        Returns the freshly initialised network.
    shape : (channels, height, width) of one input image.
    normalisation : of weights that carry none as metadata: what the published ones were
        trained with.
    training : normalisation for training it anew, the paper's.
    data : the data set it is trained on by default, as ``open_data`` names it; None if it cannot
        be had by name.
    notes : where the architecture and the weights come from, and their licence.
    """

    name: str
    build: Callable[[], nn.Module]
    classes: int
    shape: tuple[int, int, int]
    normalisation: Normalisation
    training: Normalisation
    data: str | None
    notes: str


def seeded(build: Callable[[], nn.Module], seed: int) -> nn.Module:
    """Build a network whose initial weights depend on ``seed`` alone.

    The global generator is left as it was.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return build()


def _floats(name: str, values: Sequence[float]) -> tuple[float, ...]:
    try:
        numbers = tuple(float(value) for value in values)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name!r} must be a list of numbers. Got {values!r}.") from error
    if not numbers or not all(math.isfinite(number) for number in numbers):
        raise InputError(f"{name!r} must be a list of finite numbers. Got {values!r}.")
    return numbers

"""What all methods of an experiment share: one trained network, and its images."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from snacs.config import check_choice
from snacs.network.layers import Ignore

HALVES = ("dev", "report", "all")
"""Test images to choose on, to report on, and both together."""


@dataclass(frozen=True, eq=False)
class Material:
    """A trained network and the images to calibrate, retrain and test it on.

    Attributes
    ----------
    calibration : function of the seed
        Labelled batches; other seeds draw other images.
    bn : function of the seed
        The same images augmented as in training, or None where no augmentation is known.
    exchange : function of the seed and a number of images
        Training images to exchange kernels on; None for none.
    train : function of the seed and the batch size
        Returns a function of the epoch, as ``train_`` takes it.
    test : labelled batches, read several times.
    half : which test images these are, one of :data:`HALVES`.
    classes : labels that occur in the data; a network may know more.
    count : calibration images.
    device : where everything runs, as torch names it.
    """

    model: nn.Module
    calibration: Callable[[int], Iterable[Any]]
    bn: Callable[[int], Iterable[Any] | None]
    train: Callable[[int, int], Callable[[int], Iterable[Any]]]
    test: Iterable[Any]
    half: str
    classes: Sequence[int]
    count: int
    exchange: Callable[[int, int], Iterable[Any] | None]
    ignore: Sequence[Ignore] = ()
    network: str = ""
    data: str = ""
    device: str = "cpu"

    def __post_init__(self) -> None:
        check_choice("half", self.half, HALVES)

"""Labelled images as one frozen value, and batches of them that repeat exactly.

``Images`` says what there is; ``Batches`` reads it in some order. The same seed and epoch give the
same batches, whatever the number of reading threads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from snacs.errors import InputError
from snacs.zoo.data.augment import SHIFT, crop_flip
from snacs.zoo.entry import Normalisation

AUGMENTATIONS = ("crop-flip", "shift", "resized-crop")


class Pixels(Protocol):
    """Where images come from: memory, or files that are read when they are needed."""

    def __len__(self) -> int: ...

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one image: (channels, height, width)."""
        ...

    def read(self, batches: Sequence[Tensor], crop_seed: int | None) -> Iterator[Tensor]:
        """The images of each batch of indices, uint8 or float, (n, c, h, w), in order.

        With a ``crop_seed``, each image is a random-resized crop that depends on that seed and on
        its own index, not on its place in a batch.
        """
        ...


@dataclass(frozen=True, eq=False)
class InMemory:
    """Images held as one tensor: uint8 (n, c, h, w), or floats that are used as they are."""

    x: Tensor

    def __len__(self) -> int:
        return len(self.x)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.x.shape[1:])

    def read(self, batches: Sequence[Tensor], crop_seed: int | None) -> Iterator[Tensor]:
        if crop_seed is not None:
            raise InputError(
                "augment='resized-crop' is for folders of image files. These images are held in "
                "memory at their final size: use augment='crop-flip'."
            )
        for indices in batches:
            yield self.x[indices]


@dataclass(frozen=True, eq=False)
class Images:
    """Labelled images of one split.

    Attributes
    ----------
    pixels : what reads them.
    y : (n,) int64 labels: the index of the network's output that stands for the class.
    classes : name of each label that can occur.
    normalisation : applied after scaling uint8 to [0, 1]; None leaves [0, 1].
    origin : one line for people: which data, which split.
    """

    pixels: Pixels
    y: Tensor
    classes: Mapping[int, str]
    normalisation: Normalisation | None = None
    origin: str = ""
    index: Tensor | None = field(default=None, repr=False)

    def __len__(self) -> int:
        return len(self.y)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one image as the network sees it: (channels, height, width)."""
        return self.pixels.shape

    def subset(self, indices: Sequence[int] | Tensor | slice) -> Images:
        """Only these images, in this order."""
        every = torch.arange(len(self.pixels)) if self.index is None else self.index
        chosen = indices if isinstance(indices, slice) else torch.as_tensor(indices).long()
        return replace(self, y=self.y[chosen], index=every[chosen])

    def balanced(self, count: int, *, seed: int = 0) -> Images:
        """About ``count`` images, as equal over classes as they allow, in random order."""
        if count < 1:
            raise InputError(f"'count' must be at least 1. Got {count}.")
        generator = np.random.default_rng(seed)
        labels = self.y.numpy()
        # The rank of an image within its class, after a shuffle: low ranks of all classes first.
        order = generator.permutation(len(labels))
        rank = np.empty(len(labels), dtype=np.int64)
        for label in np.unique(labels):
            members = order[labels[order] == label]
            rank[members] = np.arange(len(members))
        chosen = order[np.argsort(rank[order], kind="stable")][:count]
        return self.subset(torch.from_numpy(generator.permutation(chosen)))

    def batches(
        self,
        batch_size: int,
        *,
        shuffle: int | None = None,
        epoch: int = 0,
        augment: str | None = None,
        drop_last: bool = False,
    ) -> Batches:
        """Batches of normalised float images and labels, readable any number of times.

        Parameters
        ----------
        shuffle : seed of the order and of the augmentation; None keeps the order, and augments
            with seed 0.
        epoch : together with the seed it decides both; see :meth:`Batches.at_epoch`.
        augment : None; "crop-flip" (zero-pad 4, crop, flip); "shift" (zero-pad 1, crop: for
            digits, which must not be flipped); "resized-crop" (crop, resize, flip; image files).
        drop_last : leave out a smaller last batch.
        """
        return Batches(
            images=self,
            batch_size=batch_size,
            shuffle=shuffle,
            epoch=epoch,
            augment=augment,
            drop_last=drop_last,
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class Batches:
    """A re-iterable of (x, y): float32 (n, c, h, w) and int64 (n,). See :meth:`Images.batches`."""

    images: Images
    batch_size: int
    shuffle: int | None = None
    epoch: int = 0
    augment: str | None = None
    drop_last: bool = False

    def __post_init__(self) -> None:
        if self.batch_size < 1:
            raise InputError(f"'batch_size' must be at least 1. Got {self.batch_size}.")
        if self.augment is not None and self.augment not in AUGMENTATIONS:
            raise InputError(
                f"'augment' must be None or one of {', '.join(AUGMENTATIONS)}. "
                f"Got {self.augment!r}."
            )
        for name in ("shuffle", "epoch"):
            value = getattr(self, name)
            if value is not None and value < 0:
                raise InputError(f"{name!r} must not be negative. Got {value}.")

    def __len__(self) -> int:
        whole, rest = divmod(len(self.images), self.batch_size)
        return whole if self.drop_last or not rest else whole + 1

    def at_epoch(self, epoch: int) -> Batches:
        """The same batches in the order, and with the augmentation, of another epoch."""
        return replace(self, epoch=epoch)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        # One generator for the order and one for the pixels, so that neither shifts the other.
        order_seed, pixel_seed = np.random.SeedSequence(
            (self.shuffle or 0, self.epoch)
        ).generate_state(2, dtype=np.uint32)
        order = torch.arange(len(self.images))
        if self.shuffle is not None:
            order = torch.randperm(len(order), generator=_generator(order_seed))
        chunks = list(torch.split(order, self.batch_size))[: len(self)]
        index = self.images.index
        files = [chunk if index is None else index[chunk] for chunk in chunks]
        crop_seed = int(pixel_seed) if self.augment == "resized-crop" else None
        generator = _generator(pixel_seed)
        pixels = self.images.pixels.read(files, crop_seed)
        for chunk, x in zip(chunks, pixels, strict=True):
            if self.augment == "crop-flip":
                x = crop_flip(x, generator)
            elif self.augment == "shift":
                x = crop_flip(x, generator, padding=SHIFT, flip=False)
            yield self._normalised(x), self.images.y[chunk]

    def _normalised(self, x: Tensor) -> Tensor:
        if x.dtype != torch.uint8:
            return x
        scaled = x.float() / 255
        normalisation = self.images.normalisation
        return scaled if normalisation is None else normalisation(scaled)


def stratified_split(y: Tensor, *, held_out: float, seed: int) -> tuple[Tensor, Tensor]:
    """Indices to keep and to hold out: the same share of every class, each sorted."""
    generator = np.random.default_rng(seed)
    labels = y.numpy()
    test = np.zeros(len(labels), dtype=bool)
    for label in np.unique(labels):
        members = generator.permutation(np.flatnonzero(labels == label))
        test[members[: round(held_out * len(members))]] = True
    return torch.from_numpy(np.flatnonzero(~test)), torch.from_numpy(np.flatnonzero(test))


def _generator(seed: np.uint32) -> torch.Generator:
    return torch.Generator().manual_seed(int(seed))

"""Reading image files with Pillow: several threads, the usual crops, errors that name the file."""

from __future__ import annotations

import math
import os
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from snacs.errors import InputError

SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".webp", ".ppm", ".pgm", ".tif", ".tiff", ".gif")
RESIZE = 256 / 224
"""Shorter side after resizing, relative to the side of the centre crop."""
_BATCHES_AHEAD = 2
_AREA = (0.08, 1.0)
_ASPECT = (3 / 4, 4 / 3)


def default_workers() -> int:
    """One thread per core, at most 8: Pillow decodes outside the interpreter's lock."""
    return min(8, os.cpu_count() or 1)


@dataclass(frozen=True, eq=False)
class Pictures:
    """Image files, decoded when they are needed.

    Attributes
    ----------
    size : side of the square that comes out.
    channels : 3 (RGB) or 1 (grey); files of any mode are converted.
    workers : reading threads; they do not change what is read.
    """

    paths: tuple[Path, ...] = field(repr=False)
    size: int
    channels: int = 3
    workers: int = field(default_factory=default_workers)

    def __len__(self) -> int:
        return len(self.paths)

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.channels, self.size, self.size)

    def read(self, batches: Sequence[Tensor], crop_seed: int | None) -> Iterator[Tensor]:
        """See :class:`~snacs.zoo.data.images.Pixels`. Two batches are decoded ahead."""
        pool = ThreadPoolExecutor(self.workers)
        waiting: deque[list[Future[Tensor]]] = deque()
        try:
            for indices in batches:
                waiting.append(
                    [pool.submit(self._one, index, crop_seed) for index in indices.tolist()]
                )
                if len(waiting) > _BATCHES_AHEAD:
                    yield torch.stack([image.result() for image in waiting.popleft()])
            while waiting:
                yield torch.stack([image.result() for image in waiting.popleft()])
        finally:
            pool.shutdown(cancel_futures=True)

    def _one(self, index: int, crop_seed: int | None) -> Tensor:
        path = self.paths[index]
        try:
            with Image.open(path) as image:
                if crop_seed is None:
                    square = centre_crop(_converted(image, self.channels), self.size)
                else:
                    # Seeded by the file's index: independent of batch, thread and order.
                    generator = np.random.default_rng((crop_seed, index))
                    square = resized_crop(image, self.size, self.channels, generator)
                pixels = np.array(square, dtype=np.uint8)
        except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
            raise InputError(
                f"The image {path} cannot be read: {error}. Repair or remove the file."
            ) from error
        return torch.from_numpy(pixels.reshape(self.size, self.size, -1)).permute(2, 0, 1)


def centre_crop(image: Image.Image, size: int) -> Image.Image:
    """Shorter side to 8/7 of ``size``, then the central square; unchanged if it is that already."""
    if image.size == (size, size):
        return image
    short = round(size * RESIZE)
    scale = short / min(image.size)
    width, height = (max(short, int(side * scale)) for side in image.size)
    left, top = round((width - size) / 2), round((height - size) / 2)
    resized = image.resize((width, height), Image.Resampling.BILINEAR)
    return resized.crop((left, top, left + size, top + size))


def resized_crop(
    image: Image.Image, size: int, channels: int, generator: np.random.Generator
) -> Image.Image:
    """A random part (8 to 100 % of the area, aspect 3:4 to 4:3), resized; flipped half the time."""
    width, height = image.size
    left, top, right, bottom = _random_box(width, height, generator)
    # JPEG can decode at 1/2, 1/4 or 1/8: enough when the crop stays larger than what is asked for.
    shrink = max(size / (right - left), size / (bottom - top))
    if shrink < 1:
        image.draft(None, (math.ceil(width * shrink), math.ceil(height * shrink)))
    across, down = image.size[0] / width, image.size[1] / height
    box = (left * across, top * down, right * across, bottom * down)
    square = _converted(image, channels).resize((size, size), Image.Resampling.BILINEAR, box=box)
    if generator.random() < 0.5:
        return square.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    return square


def _random_box(
    width: int, height: int, generator: np.random.Generator
) -> tuple[int, int, int, int]:
    for _ in range(10):
        area = width * height * generator.uniform(*_AREA)
        aspect = math.exp(generator.uniform(math.log(_ASPECT[0]), math.log(_ASPECT[1])))
        across, down = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < across <= width and 0 < down <= height:
            left = int(generator.integers(width - across + 1))
            top = int(generator.integers(height - down + 1))
            return left, top, left + across, top + down
    # Very long images rarely fit: take the largest central part with an allowed aspect.
    across = min(width, max(1, round(height * _ASPECT[1])))
    down = min(height, max(1, round(width / _ASPECT[0])))
    left, top = (width - across) // 2, (height - down) // 2
    return left, top, left + across, top + down


def _converted(image: Image.Image, channels: int) -> Image.Image:
    """RGB or grey, from any mode; transparency is dropped."""
    if image.mode.startswith("I;16"):
        # Pillow would clip 16 bits at 255 instead of scaling them.
        high = np.asarray(image).astype(np.uint16) >> 8
        image = Image.fromarray(high.astype(np.uint8))
    elif image.mode == "P":
        image = image.convert("RGBA")
    return image.convert("RGB" if channels == 3 else "L")

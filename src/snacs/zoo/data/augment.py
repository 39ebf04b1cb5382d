"""Augmentation of whole batches of uint8 images; every random number comes from the caller."""

from __future__ import annotations

import torch
from torch import Tensor

PADDING = 4
"""Pixels of zero padding before the random crop, as in the paper."""


SHIFT = 1
"""Pixels by which "shift" moves an image: an eighth of a digit."""


def crop_flip(
    x: Tensor, generator: torch.Generator, *, padding: int = PADDING, flip: bool = True
) -> Tensor:
    """Pad with zeros, crop back to the same size at a random place, flip every second image.

    Parameters
    ----------
    x : (n, c, h, w), any dtype
    """
    n, c, height, width = x.shape
    padded = x.new_zeros(n, c, height + 2 * padding, width + 2 * padding)
    padded[:, :, padding : padding + height, padding : padding + width] = x
    top = torch.randint(0, 2 * padding + 1, (n, 1), generator=generator)
    left = torch.randint(0, 2 * padding + 1, (n, 1), generator=generator)
    flipped = (torch.rand(n, 1, generator=generator) < 0.5) & flip
    rows = top + torch.arange(height)
    columns = left + torch.arange(width)
    # A flip is the same crop with its columns read backwards: one gather does both.
    columns = torch.where(flipped, columns.flip(1), columns)
    images = torch.arange(n)[:, None, None]
    # Advanced indices around a slice put the channel axis last: (n, h, w, c).
    return padded[images, :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2).contiguous()

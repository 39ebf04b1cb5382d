"""An epoch in parts, for training that must stop sooner than a whole pass takes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from snacs.errors import InputError
from snacs.zoo.data.images import Batches


@dataclass(frozen=True, eq=False)
class Parts:
    """Batches of which every pass over the images is cut into ``count`` parts.

    ``at_epoch(e)`` gives part ``e % count`` of pass ``e // count``. A part is a whole number of
    batches, the parts of a pass share no image, and each pass is cut anew.
    """

    batches: Batches
    count: int

    def __post_init__(self) -> None:
        most = max(1, len(self.batches))
        if not 1 <= self.count <= most:
            raise InputError(f"'count' must lie between 1 and {most}. Got {self.count}.")

    def at_epoch(self, epoch: int) -> Batches:
        """The batches of one part."""
        if self.count == 1:
            return self.batches.at_epoch(epoch)
        images = self.batches.images
        turn, part = divmod(epoch, self.count)
        seed = np.random.SeedSequence((self.batches.shuffle or 0, turn, 0x9A27)).generate_state(1)
        generator = torch.Generator().manual_seed(int(seed[0]))
        order = torch.randperm(len(images), generator=generator)
        # Cut between batches: a part that ends within one would drop what is left of it.
        bounds = np.linspace(0, len(self.batches), self.count + 1).round().astype(int)
        size = self.batches.batch_size
        mine = images.subset(order[bounds[part] * size : bounds[part + 1] * size])
        return mine.batches(
            self.batches.batch_size,
            shuffle=self.batches.shuffle,
            augment=self.batches.augment,
            drop_last=self.batches.drop_last,
        ).at_epoch(epoch)

"""Random numbers that depend on the seed and the epoch only, and are given back afterwards."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch


@contextmanager
def borrowed_randomness() -> Iterator[None]:
    """Whatever is seeded inside, the caller's random states are the same after."""
    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002
    devices = list(range(torch.cuda.device_count()))
    try:
        with torch.random.fork_rng(devices=devices):
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)  # noqa: NPY002


def seed_epoch(seed: int, epoch: int) -> int:
    """Seed all global generators for one epoch and return the seed that was mixed.

    An epoch's dropout, augmentation and order then do not depend on how many epochs ran before in
    this process, which is what makes a resumed run the same as an uninterrupted one.
    """
    mixed = int(np.random.SeedSequence([seed, epoch]).generate_state(1)[0])
    random.seed(mixed)
    np.random.seed(mixed)  # noqa: NPY002
    torch.manual_seed(mixed)
    return mixed


def seed_loader(data: Any, epoch: int, mixed: int) -> None:
    """The same for generators that a DataLoader and its sampler own."""
    sampler: Any = getattr(data, "sampler", None)
    for owner in (data, sampler):
        generator = getattr(owner, "generator", None)
        if isinstance(generator, torch.Generator):
            generator.manual_seed(mixed)
    if hasattr(sampler, "set_epoch"):
        sampler.set_epoch(epoch)

"""A schedule that fits the time at hand: how fast the machine trains, and what that allows."""

from __future__ import annotations

import copy
import math
import statistics
import time
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import nn

from snacs.errors import InputError
from snacs.network.batches import labels_of, logits_of, map_tensors, move, run, size_of
from snacs.training.layout import channels_last, laid_out
from snacs.training.losses import loss_of
from snacs.training.recipes import Recipe, scaled

STEPS = 10
"""A run is cut into at least this many parts, so that a kill costs a tenth of it at most."""
WARMUP = 0.1
RESERVE = 0.9
"""Share of the time that is planned; the rest is for starting, checkpoints and the final test."""


class Schedule(NamedTuple):
    """``recipe.epochs`` counts parts; ``parts`` of them make one pass over the images."""

    recipe: Recipe
    parts: int


def pace(model: nn.Module, batches: Iterable[Any], recipe: Recipe, *, steps: int = 5) -> float:
    """Seconds per image of a training step, reading included: the median of a few on a copy.

    The first is not counted. The network and the caller's random state are not touched.
    """
    trial = copy.deepcopy(model).train()
    optimizer = torch.optim.SGD(trial.parameters(), lr=1e-6, momentum=recipe.momentum)
    seen: list[float] = []
    inside = laid_out(trial, channels_last=recipe.channels_last)
    with torch.random.fork_rng(devices=[]), inside:
        began = time.perf_counter()
        for batch in batches:
            batch = move(batch, trial)
            if recipe.channels_last:
                batch = map_tensors(batch, channels_last)
            optimizer.zero_grad()
            labels = labels_of(batch)
            if labels is None:
                raise InputError("Training needs labels: batches of (images, labels).")
            plain = Recipe(epochs=1, learning_rate=1.0)
            loss = loss_of(logits_of(run(trial, batch)), labels.long(), plain, None)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            now = time.perf_counter()
            seen.append((now - began) / size_of(batch))
            began = now
            if len(seen) > steps:
                break
    if len(seen) < 2:
        raise InputError("There are too few training images to measure how fast they train.")
    return statistics.median(seen[1:])


def fit(recipe: Recipe, *, seconds: float, images: int, pace: float) -> Schedule:
    """The recipe, squeezed to ``seconds`` on a machine of that pace.

    Never more passes than the recipe has. Fewer than ten passes are cut into parts, and get a
    warm-up of a tenth: a rate that is right for 300 epochs blows up in the first steps of one.

    >>> from snacs.training.recipes import RECIPES
    >>> found = fit(RECIPES["train-vgg16"], seconds=1200, images=50_000, pace=0.02)
    >>> found.recipe.epochs, found.parts
    (10, 10)
    >>> [round(m, 1) for m in found.recipe.milestones]
    [3.0, 6.0, 8.7]
    """
    passes = min(float(recipe.epochs), RESERVE * seconds / (images * pace))
    parts = 1 if passes >= STEPS else math.ceil(STEPS / passes)
    parts = max(1, min(parts, images // recipe.batch))
    epochs = max(1, math.floor(passes * parts))
    found = scaled(recipe, epochs)
    if parts > 1 and found.warmup < WARMUP * epochs:
        words = f"A warm-up of {WARMUP:.0%} was added: there is time for {passes:.2g} passes only."
        found = replace(found, warmup=WARMUP * epochs, note=f"{found.note} {words}".strip())
    return Schedule(found, parts)

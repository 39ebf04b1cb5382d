"""Short measurements by which a compiled network decides how it runs."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from snacs.runtime.steps import Conv

Key = TypeVar("Key")


def seconds(
    calls: Mapping[Key, Callable[[], Any]],
    *,
    rounds: int = 7,
    least: float = 0.0,
    limit: float = 1.0,
) -> dict[Key, float]:
    """Best time of each call, in turn, so that other work on the machine disturbs all alike.

    Rounds go on for ``least`` seconds. After ``limit`` seconds no further one is begun, but there
    are two at least.
    """
    best: dict[Key, float] = dict.fromkeys(calls, np.inf)
    begun = time.perf_counter()
    for done in itertools.count():
        spent = time.perf_counter() - begun
        if done >= 2 and (spent > limit or (done >= rounds and spent >= least)):
            break
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            best[name] = min(best[name], time.perf_counter() - start)
    return best


def dense_seconds(step: Conv, images: int) -> float:
    """Torch's dense layer alone, without the BatchNorm, sum and activation that ours include."""
    x = torch.zeros(images, step.x.channels, step.x.height, step.x.width)
    weight, bias = torch.from_numpy(step.weight), torch.from_numpy(step.bias)

    def call() -> Tensor:
        return F.conv2d(x, weight, bias, step.stride, step.padding, step.dilation, step.groups)

    with torch.no_grad():
        return seconds({"dense": call}, rounds=4, limit=0.2)["dense"]

"""The sparse runtime on single layers: against torch's dense convolution, in turn, in one run."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from benchmarks.measure import SEED, Line, timed
from snacs.runtime.compiled import compile as compile_network


@dataclass(frozen=True)
class Sizes:
    """Square 3×3 layers as (channels, side), and the share of kernels that is gone."""

    layers: tuple[tuple[int, int], ...] = ((64, 8), (256, 8), (512, 4), (128, 16))
    batches: tuple[int, ...] = (1, 16)
    gone: float = 0.9
    rounds: int = 40

    @staticmethod
    def small() -> Sizes:
        return Sizes(layers=((16, 4),), batches=(1, 3), rounds=3)


def lines(sizes: Sizes) -> Iterator[Line]:
    """One line per layer and batch: how many times faster than dense, of the 10 that are ideal."""
    for channels, side in sizes.layers:
        for batch in sizes.batches:
            yield _layer(channels, side, batch, sizes)


def _layer(channels: int, side: int, batch: int, sizes: Sizes) -> Line:
    generator = torch.Generator().manual_seed(SEED)
    conv = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
    with torch.no_grad():
        conv.weight.copy_(torch.randn(conv.weight.shape, generator=generator))
        order = torch.randperm(channels * channels, generator=generator)
        flat = conv.weight.view(channels * channels, -1)
        flat[order[: round(sizes.gone * channels * channels)]] = 0
    x = torch.randn(batch, channels, side, side, generator=generator)
    fast = compile_network(nn.Sequential(conv), x)
    found = in_turn({"dense": lambda: conv(x), "sparse": lambda: fast(x)}, rounds=sizes.rounds)
    best = {name: min(times) for name, times in found.items()}
    medians = {name: sorted(times)[len(times) // 2] for name, times in found.items()}
    ratio, ideal = best["dense"] / best["sparse"], 1 / (1 - sizes.gone)
    row = fast.layers[0]
    return Line(
        f"{channels}×{side}×{side}, batch {batch}, {sizes.gone:.0%} of kernels gone",
        ratio,
        f"times torch's dense convolution ({ratio / ideal:.0%} of the ideal {ideal:.0f})",
        target=3.0,
        seconds={f"{name} best": seconds for name, seconds in best.items()}
        | {f"{name} median": seconds for name, seconds in medians.items()},
        notes=(f"{row.runs}, {row.layout} innermost, {torch.get_num_threads()} threads",),
    )


def in_turn(
    calls: dict[str, Callable[[], Any]], *, rounds: int, rest: float = 0.01
) -> dict[str, list[float]]:
    """Seconds of each call, one after the other, again and again.

    Before each timed call there is a rest, in which the threads of the one before stop waiting for
    more work (OpenMP's keep a core busy for 6 ms), and one call that is not timed.
    """
    found: dict[str, list[float]] = {name: [] for name in calls}
    with torch.no_grad():
        for _ in range(rounds):
            for name, call in calls.items():
                time.sleep(rest)
                call()
                found[name].append(timed(call))
    return found

"""Pruned networks as they are run: sparse runtime, dense torch, dense onnxruntime, compacted.

Weights of the zoo are taken where they are found (``$SNACS_WEIGHTS``), else random ones: the time
does not depend on them. Masks are L2 magnitudes at the paper's limits, or uniform.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import nn

import snacs
from benchmarks.measure import SEED, Line
from snacs.experiments.gammas import largest_kernels, paper_limits
from snacs.network.masking import apply_
from snacs.zoo.entry import seeded
from snacs.zoo.networks import NETWORKS
from snacs.zoo.weights import find_weights, load_weights_

Wanted = dict[tuple[int, str], float]


@dataclass(frozen=True)
class Sizes:
    """Networks with their masks and, by batch size and rival, how many times faster is wanted."""

    cases: tuple[tuple[str, str, Wanted], ...] = (
        ("vgg16", "gamma", {(1, "torch"): 3, (16, "torch"): 3, (1, "onnx"): 2, (16, "onnx"): 2}),
        ("resnet56", "gamma", {(1, "torch"): 2, (16, "torch"): 1.15}),
        ("resnet56", "0.8", {(16, "torch"): 1.8, (1, "onnx"): 1, (16, "onnx"): 1}),
    )
    seconds: float = 1.5
    batches: tuple[int, ...] = (1, 16)

    @staticmethod
    def small() -> Sizes:
        return Sizes(cases=(("small-resnet", "0.8", {}),), seconds=0.01, batches=(2,))


@dataclass(frozen=True)
class FilterSizes:
    """Networks that lose whole filters until half of the multiply-adds are gone."""

    networks: tuple[str, ...] = ("vgg16", "resnet50")
    seconds: float = 3.0

    @staticmethod
    def small() -> FilterSizes:
        return FilterSizes(networks=("small-conv",), seconds=0.01)


def lines(sizes: Sizes) -> Iterator[Line]:
    """Two lines per network and batch: against dense torch, against dense onnxruntime."""
    for network, masks, wanted in sizes.cases:
        model = network_of(network)
        limits = _limits(network, model, masks)
        apply_(model, largest_kernels(model, limits))
        x = torch.randn(2, *NETWORKS[network].shape)
        found = snacs.bench(model, x, batches=sizes.batches, seconds=sizes.seconds, memory=False)
        for batch in sizes.batches:
            rows = {row["what"]: row for row in found.rows if row["batch"] == batch}
            ours = rows["snacs, sparse"]
            for rival, name in (("torch", "torch, dense"), ("onnx", "onnxruntime, dense")):
                ratio = rows[name]["best_ms"] / ours["best_ms"]
                yield Line(
                    f"{network}, {masks}, batch {batch}: sparse runtime",
                    ratio,
                    f"times {name} ({ratio / ours['ideal']:.0%} of the ideal {ours['ideal']:.2f})",
                    target=wanted.get((batch, rival)),
                    seconds={
                        f"{kind} {what}": rows[what][f"{kind}_ms"] / 1e3
                        for what in (name, "snacs, sparse")
                        for kind in ("best", "median")
                    },
                    notes=(f"{ours['threads']} threads, {ours['rounds']} rounds",),
                )


def filter_lines(sizes: FilterSizes) -> Iterator[Line]:
    """How much of the ratio of multiply-adds compacted networks reach, at batch 16."""
    for network in sizes.networks:
        model, shape = network_of(network), NETWORKS[network].shape
        generator = torch.Generator().manual_seed(SEED)
        images = [(torch.randn(8, *shape, generator=generator), torch.arange(8) % 4)] * 2
        plan = snacs.plan(
            model,
            images,
            target=0.5,
            budget="macs",
            score="l2",
            allocation="uniform",
            granularity="filter",
        )
        snacs.apply_(model, plan)
        found = snacs.bench(
            model, images[0][0][:2], batches=(16,), seconds=sizes.seconds, memory=False
        )
        rows = {row["what"]: row for row in found.rows}
        for library in ("torch", "onnxruntime"):
            dense, small = rows[f"{library}, dense"], rows[f"{library}, compacted"]
            ratio, ideal = dense["best_ms"] / small["best_ms"], small["ideal"]
            yield Line(
                f"{network}, half of the MACs gone in whole filters, batch 16, {library}",
                ratio / ideal,
                f"of the ideal {ideal:.2f} ({ratio:.2f} times its own dense network)",
                target=0.7,
                seconds={
                    f"{kind} {name}": row[f"{kind}_ms"] / 1e3
                    for name, row in (("dense", dense), ("compacted", small))
                    for kind in ("best", "median")
                },
                notes=(f"{small['threads']} threads, {small['rounds']} rounds",),
            )


def network_of(name: str) -> nn.Module:
    """A network of the zoo in eval mode, with its weights where they are found."""
    model = seeded(NETWORKS[name].build, SEED)
    weights = find_weights(name)
    if weights is not None:
        load_weights_(model, weights)
    return model.eval()


def _limits(network: str, model: nn.Module, masks: str) -> dict[str, float]:
    if masks == "gamma":
        return {name: limit for name, limit in paper_limits(network).items() if limit}
    kinds = (nn.Conv2d, nn.Linear)
    names = [name for name, module in model.named_modules() if isinstance(module, kinds)]
    return dict.fromkeys(names[1:-1], float(masks))

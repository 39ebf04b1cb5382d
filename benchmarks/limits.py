"""The limit curve: window means and one product per level, against refitting and convolving."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from sklearn.svm import SVC
from threadpoolctl import threadpool_limits

from benchmarks import baselines
from benchmarks.layers import class_maps
from benchmarks.measure import CPU, SEED, Line, best_of, timed
from snacs.config import Config
from snacs.limits import measure_curves, svm
from snacs.values import Evidence, Layer
from snacs.zoo.entry import seeded
from snacs.zoo.networks import NETWORKS

LEVELS = 99


@dataclass(frozen=True)
class Sizes:
    """``side`` is that of VGG16's convolution 9 on CIFAR-10.

    ``larger`` are ResNet50's last 3×3 and VGG16's last three convolutions on ImageNet.
    """

    filters: int = 512
    images: int = 2000
    side: int = 4
    larger: tuple[tuple[int, str], ...] = (
        (7, "ResNet50 at 224 pixels"),
        (14, "VGG16 at 224 pixels, convolutions 11 to 13"),
    )
    timed_levels: tuple[float, ...] = (0.25, 0.5, 0.75)
    passed: int = 100

    @staticmethod
    def small() -> Sizes:
        return Sizes(filters=12, images=60, larger=((5, "few"),), timed_levels=(0.5,), passed=2)


def lines(sizes: Sizes) -> Iterator[Line]:
    """One thread for both ways."""
    evidence, maps, weight = _case(sizes)
    scores = np.abs(evidence.weight).sum(axis=2)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(limits=1):
            yield from _speed(evidence, maps, weight, scores, sizes)
            yield _agreement(evidence, maps, weight, scores, sizes)
            del maps
            for side, network in sizes.larger:
                yield _larger(replace(sizes, side=side), network)
    finally:
        torch.set_num_threads(before)


def _case(sizes: Sizes) -> tuple[Evidence, torch.Tensor, torch.Tensor]:
    """A 3×3 convolution of class-dependent maps, and the evidence of it."""
    array, labels = class_maps(
        images=sizes.images, channels=sizes.filters, side=sizes.side, seed=SEED
    )
    maps = torch.from_numpy(array)
    generator = torch.Generator().manual_seed(SEED)
    weight = torch.randn(sizes.filters, sizes.filters, 3, 3, generator=generator)
    weight /= (9 * sizes.filters) ** 0.5
    means = torch.cat(
        [torch.nn.functional.unfold(part, 3, padding=1).mean(dim=2) for part in maps.split(250)]
    ).reshape(sizes.images, sizes.filters, 9)
    flat = weight.reshape(sizes.filters, sizes.filters, 9)
    evidence = Evidence(
        layer=Layer("wide", "Conv2d", sizes.filters, sizes.filters, 9),
        weight=flat.numpy(),
        bias=None,
        windows=means.numpy(),
        inputs=means[:, :, 4].numpy(),
        outputs=np.zeros((sizes.images, sizes.filters), np.float32),
        window_means=means.numpy(),
        input_rms=np.ones(sizes.filters, np.float32),
        labels=labels,
    )
    return evidence, maps, weight


def _curve(evidence: Evidence, scores: np.ndarray) -> np.ndarray:
    nobody = np.zeros(evidence.layer.c_out, dtype=bool)
    curves = measure_curves(
        evidence, scores, protections=[(0.0, nobody)], config=Config(), seed=SEED
    )
    return curves[0].accuracy


def _speed(
    evidence: Evidence, maps: torch.Tensor, weight: torch.Tensor, scores: np.ndarray, sizes: Sizes
) -> Iterator[Line]:
    ours = min(timed(lambda: _curve(evidence, scores), clock=CPU) for _ in range(2))
    way = (maps, weight, scores, evidence.labels)
    each = float(
        np.mean([timed(_one_level(way, level), clock=CPU) for level in sizes.timed_levels])
    )
    title = f"limit curve, {LEVELS} levels, {sizes.filters} filters, {sizes.images:,} images"
    notes = (f"extrapolated from {len(sizes.timed_levels)} levels", "1 thread, CPU seconds")
    yield Line(
        f"{title}, against refit and convolve ({sizes.side}×{sizes.side} maps, as in VGG16)",
        each * LEVELS / ours,
        "×",
        200,
        seconds={"ours": ours, "refit and convolve": each * LEVELS, "one level of it": each},
        notes=notes,
    )
    network = _network_seconds(sizes)
    yield Line(
        f"{title}, against refit and run the network again (as the authors' programs do)",
        (each + network) * LEVELS / ours,
        "×",
        seconds={"ours": ours, "theirs": (each + network) * LEVELS, "one pass": network},
        notes=(*notes, f"a pass of VGG16, seeded, extrapolated from {sizes.passed} images"),
    )


def _larger(sizes: Sizes, network: str) -> Line:
    """The same layer on larger maps: their convolution costs more, our window means do not."""
    evidence, maps, weight = _case(sizes)
    scores = np.abs(evidence.weight).sum(axis=2)
    ours = timed(lambda: _curve(evidence, scores), clock=CPU)
    level = sizes.timed_levels[len(sizes.timed_levels) // 2]
    each = timed(_one_level((maps, weight, scores, evidence.labels), level), clock=CPU)
    side = f"{sizes.side}×{sizes.side}"
    return Line(
        f"the same on {side} maps, as in {network}, against refit and convolve",
        each * LEVELS / ours,
        "×",
        200,
        seconds={"ours": ours, "refit and convolve": each * LEVELS, "one level of it": each},
        notes=("extrapolated from 1 level", "1 thread, CPU seconds"),
    )


def _one_level(way: tuple[Any, ...], level: float) -> Callable[[], float]:
    return lambda: baselines.refitted_accuracy(*way, level)


def _network_seconds(sizes: Sizes) -> float:
    """VGG16 on all images: what it takes to collect activations of a deep layer anew."""
    model = seeded(NETWORKS["vgg16"].build, SEED).eval()
    images = torch.randn(sizes.passed, 3, 32, 32, generator=torch.Generator().manual_seed(SEED))
    with torch.inference_mode():
        seconds = best_of(1, lambda: model(images), clock=CPU)
    return seconds * sizes.images / sizes.passed


def _agreement(
    evidence: Evidence, maps: torch.Tensor, weight: torch.Tensor, scores: np.ndarray, sizes: Sizes
) -> Line:
    """Predictions of the products against ``SVC.predict``, where no decision is closer to 0."""
    labels = np.asarray(evidence.labels)
    dense = baselines.convolved(maps, weight)
    machine = svm.fit(dense, labels)
    reference = SVC(gamma=machine.gamma, decision_function_shape="ovo").fit(dense, labels)
    differ = compared = 0
    for level in sizes.timed_levels:
        features = baselines.convolved(maps, baselines.pruned_weight(weight, scores, level))
        clear = np.abs(reference.decision_function(features)).min(axis=1) > 1e-9
        same = svm.predict(machine, features) == reference.predict(features)
        differ += int((~same & clear).sum())
        compared += int(clear.sum())
    return Line(
        "predictions that differ from SVC's where every |decision| > 1e-9",
        differ,
        "",
        0,
        "lower",
        notes=(f"of {compared:,} at {len(sizes.timed_levels)} levels",),
    )

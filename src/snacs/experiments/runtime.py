"""How long do scores take? MINT's spanning tree against ACMI, as the paper's run-time figure asks.

A 512 → 512 layer, 2000 samples (200 per class), G groups on both sides, one thread. The spanning
tree is a fair one (distances by one matrix product, Prim compiled) and its pairs cost the same, so
its time is the mean of some random pairs times G²; ACMI is timed whole, coding and hashing
included. Beside them stand the seconds that the authors published for their programs on their
machine, and their 36 s per SVM beside one fit here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from snacs.config import Config
from snacs.files import read_json, write_json
from snacs.limits import svm
from snacs.reporting.progress import Watch
from snacs.scores import score
from snacs.scores.grouping import split
from snacs.scores.mst import Halves, geometric
from snacs.store import Run, key_of
from snacs.values import Evidence, Layer

GROUPS = (16, 32, 64, 128, 256)
MST, ONE, WEIGHTS = "MST (compiled)", "ACMI, φ = 1", "ACMI, φ = ‖w‖₂"
PUBLISHED: dict[str, tuple[float, ...]] = {
    "MST of MINT, published": (1161.51, 6573.51, 14517.92, 74125.99, 271880.62),
    f"{ONE}, published": (45.56, 205.25, 839.93, 2439.35, 9999.0),
    f"{WEIGHTS}, published": (46.56, 171.06, 832.46, 3961.95, 10028.28),
}
"""Seconds as the authors published them for convolution 9 of VGG16, 200 samples per class."""
PUBLISHED_SVM = 36.0
OPTIONS: dict[str, Any] = {
    "score": "acmi",
    "view": "layer",
    "directions": 4,
    "width": 2.0,
    "shifts": 1,
}
VERSION = 1


def wide_layer(
    *, c_out: int = 512, c_in: int = 512, samples: int = 2000, kernel: int = 1, seed: int = 0
) -> Evidence:
    """A made-up layer whose inputs are rectified mixtures of 16 common causes and noise.

    At 4 directions and a width of 2 its cells look like those of VGG16's convolution 9 on 2,000
    CIFAR-10 images (measured there / here): samples per cell 24 / 23, informative samples
    0.96 / 0.92, bins of X 4.5 / 4.4, bins of Y 3.9 / 3.6.
    """
    rng = np.random.default_rng(seed)
    labels = np.arange(samples) % 10
    causes = rng.normal(size=(samples, 16)) + rng.normal(size=(10, 16))[labels]
    causes /= causes.std()
    mixed = 0.5 * causes @ rng.normal(size=(16, c_in * kernel))
    windows = np.maximum(mixed + rng.normal(size=mixed.shape), 0).astype(np.float32)
    weight = rng.normal(size=(c_out, c_in, kernel)).astype(np.float32)
    weight /= np.float32(np.sqrt(c_in * kernel))
    outputs = windows @ weight.reshape(c_out, -1).T
    windows = windows.reshape(samples, c_in, kernel)
    return Evidence(
        layer=Layer("wide", "Conv2d", c_out, c_in, kernel),
        weight=weight,
        bias=None,
        windows=windows,
        inputs=np.ascontiguousarray(windows[:, :, kernel // 2]),
        outputs=outputs,
        window_means=windows,
        input_rms=np.sqrt((windows**2).mean(axis=(0, 2))),
        labels=labels,
    )


def reproduce_runtime(
    run: Run,
    *,
    trials: int = 10,
    seed: int = 0,
    watch: Watch,
    groups: Sequence[int] = GROUPS,
    filters: int = 512,
    samples: int = 2000,
    pairs: int = 20,
) -> dict[str, Any]:
    """Seconds by method and G, one stage per cell; the same call goes on where it stopped.

    Returns
    -------
    dict with ``rows`` (method, groups, seconds, deviation, note) and ``svm``, seconds of one fit.
    """
    evidence = wide_layer(c_out=filters, c_in=filters, samples=samples, seed=seed)
    ways: dict[str, Callable[[int], list[float]]] = {
        MST: lambda count: _tree_seconds(evidence, count, trials, pairs, seed),
        ONE: lambda count: _score_seconds(evidence, count, trials, "one", seed),
        WEIGHTS: lambda count: _score_seconds(evidence, count, trials, "weights", seed),
    }
    places = [(method, count) for method in ways for count in groups]
    rows: list[dict[str, Any]] = []
    for index, (method, count) in enumerate(places):
        sizes = {"filters": filters, "samples": samples, "pairs": pairs, "groups": count}
        key = key_of(method=method, trials=trials, seed=seed, version=VERSION, **sizes)

        def fill(folder: Path, method: str = method, count: int = count) -> None:
            with threadpool_limits(limits=1):
                found = ways[method](count)
            row = {"method": method, "groups": count, "seconds": float(np.mean(found))}
            note = f"extrapolated from {pairs} pairs per trial" if method == MST else "whole"
            row |= {"deviation": float(np.std(found)), "trials": trials, "note": note}
            write_json(folder / "row.json", row)

        place = f"rows/{list(ways).index(method)}-{count}"
        rows.append(read_json(run.once(place, key, fill) / "row.json"))
        watch("runtime", index + 1, len(places), f"{method}, G = {count}")
    if tuple(groups) == GROUPS:
        for method, seconds in PUBLISHED.items():
            rows += [
                {"method": method, "groups": count, "seconds": value, "note": "published"}
                for count, value in zip(groups, seconds, strict=True)
            ]
    return {"rows": rows, "svm": _svm_seconds(evidence), "svm_published": PUBLISHED_SVM}


def _score_seconds(
    evidence: Evidence, groups: int, trials: int, scaling: str, seed: int
) -> list[float]:
    config = Config.preset("default", **OPTIONS, groups=groups, scaling=scaling)
    score(evidence, config, seed=seed)  # kernels are compiled and caches warm
    return [_timed(lambda: score(evidence, config, seed=seed)) for _ in range(trials)]


def _tree_seconds(
    evidence: Evidence, groups: int, trials: int, pairs: int, seed: int
) -> list[float]:
    rng = np.random.default_rng(seed)
    rows, columns = split(evidence.layer.c_out, groups), split(evidence.layer.c_in, groups)
    found = []
    for trial in range(trials + 1):
        seconds = 0.0
        for _ in range(pairs):
            i, j = rng.integers(0, len(rows)), rng.integers(0, len(columns))
            x, y = evidence.outputs[:, rows[i]], evidence.inputs[:, columns[j]]
            z = np.delete(evidence.inputs, columns[j], axis=1)
            halves = Halves.draw(rng, len(x))
            seconds += _timed(lambda x=x, y=y, z=z, h=halves: geometric(x, y, z, h))  # type: ignore[misc]
        if trial:  # the first one warms up
            found.append(seconds / pairs * len(rows) * len(columns))
    return found


def _svm_seconds(evidence: Evidence) -> float:
    """One fit and one prediction on the layer's features, one thread."""
    features = np.maximum(evidence.outputs, 0).astype(np.float64)
    with threadpool_limits(limits=1):
        return _timed(lambda: svm.predict(svm.fit(features, np.asarray(evidence.labels)), features))


def _timed(function: Callable[[], Any]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start

"""The all-pairs kernel of the layer view against spanning trees, dictionaries and the machine."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import joblib
import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks import baselines, rates
from benchmarks.layers import wide_layer
from benchmarks.measure import CPU, SEED, Line, best_of, timed
from snacs.config import Config
from snacs.scores import score
from snacs.scores.grouping import split
from snacs.scores.hashing import draw_directions, mean_deviation
from snacs.scores.mst import Halves
from snacs.values import Evidence

PATIENCE = 240.0
OPTIONS = {"view": "layer", "directions": 4, "width": 2.0, "shifts": 1}


@dataclass(frozen=True)
class Sizes:
    """How large the cases are; ``small`` is for the smoke test."""

    filters: int = 512
    samples: int = 2000
    groups: int = 256
    pairs: int = 200
    repeats: int = 7

    @staticmethod
    def small() -> Sizes:
        return Sizes(filters=16, samples=80, groups=8, pairs=3, repeats=1)


def lines(sizes: Sizes) -> Iterator[Line]:
    """All claims about the layer view, one thread unless said otherwise."""
    evidence = wide_layer(c_out=sizes.filters, c_in=sizes.filters, samples=sizes.samples, seed=SEED)
    with threadpool_limits(limits=1):
        yield from against_baselines(evidence, sizes)
        yield from against_the_machine(evidence, sizes)
    yield from threads(evidence, sizes)
    yield same_bits(evidence)
    yield cold_start()


def scored(evidence: Evidence, *, threads: int = 1, **options: object) -> np.ndarray:
    config = Config.preset("default", **{"score": "acmi", **OPTIONS, **options})
    return score(evidence, config, seed=SEED, threads=threads).values


def against_baselines(evidence: Evidence, sizes: Sizes) -> Iterator[Line]:
    """G groups on both sides: coding, hashing and all pairs, against one pair after the other."""
    hashes = {}
    for kind in ("projection", "floor"):
        way = partial(scored, evidence, groups=sizes.groups, hash=kind)
        hashes[kind] = best_of(sizes.repeats, way, clock=CPU)
    title = f"N = {sizes.samples:,}, G = {sizes.groups} on both sides"
    tree, projected = _tree(baselines.compiled_tree), _hashed(baselines.dictionary_acmi)
    printed = _floored(baselines.dictionary_acmi)
    wanted: dict[str, tuple[Callable[..., float], str, float | None]] = {
        "compiled MST (GEMM distances, Prim)": (tree, "projection", 10_000),
        "dictionary ACMI, Z projected as by the authors": (projected, "projection", 20_000),
        "dictionary ACMI, Z floored as printed (ours too)": (printed, "floor", None),
        "ACMI with numpy and Counter": (_hashed(baselines.counter_acmi), "projection", None),
    }
    for name, (pair, kind, target) in wanted.items():
        ours = hashes[kind]
        each, count = _pair_seconds(evidence, sizes, pair)
        pairs = sizes.groups**2
        yield Line(
            f"{title}, against {name}",
            each * pairs / ours,
            "×",
            target,
            seconds={"ours": ours, name: each * pairs, "one pair": each},
            notes=(f"extrapolated from {count} random pairs to {pairs:,}", "1 thread, CPU seconds"),
        )
        if name.startswith("compiled"):
            yield Line("that MST, one pair", each, "s", 0.05, "lower")


def scipy_lines(sizes: Sizes) -> Iterator[Line]:
    """The spanning tree as most would write it; last, since its pairs take a second each."""
    evidence = wide_layer(c_out=sizes.filters, c_in=sizes.filters, samples=sizes.samples, seed=SEED)
    with threadpool_limits(limits=1):
        way = partial(scored, evidence, groups=sizes.groups)
        ours = best_of(sizes.repeats, way, clock=CPU)
        each, count = _pair_seconds(evidence, sizes, _tree(baselines.scipy_tree))
    pairs = sizes.groups**2
    yield Line(
        f"N = {sizes.samples:,}, G = {sizes.groups} on both sides, against scipy's MST",
        each * pairs / ours,
        "×",
        seconds={"ours": ours, "scipy's MST": each * pairs, "one pair": each},
        notes=(f"extrapolated from {count} random pairs to {pairs:,}", "1 thread, CPU seconds"),
    )


def _pair_seconds(
    evidence: Evidence, sizes: Sizes, pair: Callable[..., float]
) -> tuple[float, int]:
    """Mean seconds of one pair over random pairs, after one that is not timed, and how many.

    On a machine so busy that they would take more than PATIENCE seconds there are fewer.
    """
    rng = np.random.default_rng(SEED)
    parts = split(sizes.filters, sizes.groups)
    total = 0.0
    for count in range(sizes.pairs + 1):
        if total > PATIENCE:
            return total / (count - 1), count - 1
        rows, columns = (parts[index] for index in rng.integers(0, len(parts), 2))
        x, y = evidence.outputs[:, rows], evidence.inputs[:, columns]
        z = np.delete(evidence.inputs, columns, axis=1)
        seconds = timed(partial(pair, x, y, z, rng), clock=CPU)
        total += seconds if count else 0.0
    return total / sizes.pairs, sizes.pairs


def _tree(pair: Callable[..., float]) -> Callable[..., float]:
    def run(x: np.ndarray, y: np.ndarray, z: np.ndarray, rng: np.random.Generator) -> float:
        return pair(x, y, z, Halves.draw(rng, len(x)))

    return run


def _hashed(pair: Callable[..., float]) -> Callable[..., float]:
    count, width = 4, 2.0  # as OPTIONS

    def run(x: np.ndarray, y: np.ndarray, z: np.ndarray, rng: np.random.Generator) -> float:
        directions = draw_directions(rng, count, z.shape[1]).T
        directions = directions / (z @ directions).std(axis=0)
        x, y = x / mean_deviation(x), y / mean_deviation(y)
        return pair(x, y, z, directions=directions, width=width, shift=rng.random(3))

    return run


def _floored(pair: Callable[..., float]) -> Callable[..., float]:
    def run(x: np.ndarray, y: np.ndarray, z: np.ndarray, rng: np.random.Generator) -> float:
        x, y, z = (values / mean_deviation(values) for values in (x, y, z))
        return pair(x, y, z, directions=None, width=2.0, shift=rng.random(3))

    return run


def against_the_machine(evidence: Evidence, sizes: Sizes) -> Iterator[Line]:
    """Single filters, against what adding and dividing alone would cost on this machine."""
    ours = best_of(sizes.repeats, partial(scored, evidence), clock=CPU)
    work, rate = rates.work_of(evidence, OPTIONS, seed=SEED), rates.measure()
    notes = (
        f"{rate.adds / 1e9:.1f} G byte adds/s, {rate.divisions / 1e9:.2f} G float32 divisions/s",
        "1 thread, CPU seconds",
    )
    filters = f"{sizes.filters}×{sizes.filters} single filters"
    bound = work.plane_adds / rate.adds + work.plane_divisions / rate.divisions
    yield Line(
        f"{filters}, from the bound, counted per bin",
        ours / bound,
        "×",
        2.0,
        "lower",
        seconds={"ours": ours, "bound": bound},
        notes=(
            f"a byte add per sample and bin, a division per segment and bin, {work.bins:.2f} "
            "bins per child",
            *notes,
        ),
    )
    least = work.adds / rate.adds + work.divisions / rate.divisions
    yield Line(
        f"{filters}, from the literal bound (one bin per child)",
        ours / least,
        "×",
        2.0,
        "lower",
        seconds={"ours": ours, "bound": least},
        notes=(
            "dividing alone, for every bin that children have, takes "
            f"{work.plane_divisions / rate.divisions / least:.2f} × this bound",
            *notes,
        ),
    )


def threads(evidence: Evidence, sizes: Sizes) -> Iterator[Line]:
    for count in (1, 2):
        scored(evidence, threads=count)
    one, two = np.inf, np.inf
    for _ in range(3 * sizes.repeats):  # in turn, so that both see the same machine
        one = min(one, timed(partial(scored, evidence, threads=1)))
        two = min(two, timed(partial(scored, evidence, threads=2)))
    yield Line(
        f"two threads against one, {sizes.filters}×{sizes.filters}",
        one / two,
        "×",
        1.7,
        seconds={"one": one, "two": two},
        notes=("best of several in turn; means something on an idle machine only",),
    )


def digest(evidence: Evidence, options: dict[str, object], threads: int) -> str:
    """SHA-256 of the scores of one layer."""
    return hashlib.sha256(scored(evidence, threads=threads, **options).tobytes()).hexdigest()


def same_bits(evidence: Evidence) -> Line:
    """Both views with 1 and 2 threads here, and in worker processes."""
    seen = []
    for options in ({}, {"groups": 8}, {"view": "child", "shifts": 2, "width": 0.5}):
        few = wide_layer(c_out=24, c_in=24, samples=min(500, len(evidence.outputs)), seed=SEED)
        here = [digest(few, options, threads) for threads in (1, 2)]
        tasks = [joblib.delayed(digest)(few, options, threads) for threads in (1, 2)]
        there = joblib.Parallel(n_jobs=2, backend="loky")(tasks)
        seen.append(len({*here, *there}))
    return Line(
        "different bits with 1 and 2 threads and in loky workers, both views",
        float(max(seen) - 1),
        "",
        0.0,
        "lower",
    )


def cold_start() -> Line:
    """A fresh process that imports and scores, once the kernels are in the cache on disk."""
    code = (
        "import numpy as np\n"
        "from snacs.config import Config\n"
        "from snacs.scores import score\n"
        "from snacs.values import Evidence, Layer\n"
        "x = np.random.default_rng(0).normal(size=(100, 8)).astype('float32')\n"
        "w, m = x[:8, :, None], x[:, :, None]\n"
        "layer = Layer('few', 'Conv2d', 8, 8, 1)\n"
        "few = Evidence(layer, w, None, m, x, x @ w[:, :, 0].T, m, x[0], np.zeros(100, int))\n"
        "for view in ('child', 'layer'):\n"
        "    score(few, Config(view=view), seed=0)\n"
    )

    def start() -> None:
        subprocess.run([sys.executable, "-c", code], check=True)

    began = time.perf_counter()
    seconds = best_of(2, start)
    return Line(
        "cold start of a fresh process, both views",
        seconds,
        "s",
        2.0,
        "lower",
        notes=(f"{time.perf_counter() - began:.0f} s for the measurement",),
    )

"""Does the estimator tell the truth? The paper's validation figures, and what they leave out.

Four tables, each row a stage of the run folder:

* ``samples``: independent Gaussians, X and Y of one and Z of two dimensions, N grows (the paper's
  first figure; the truth is 0, so the mean squared error is mostly squared bias);
* ``dimensions``: N = 5000, X, Y and Z of 3 … 50 dimensions each (the second figure);
* ``convergence``: two laws whose true value is known, N grows and ε ∝ N^(−1/(2d)) falls, as
  Theorem 1 needs (ε → 0, ε^d N → ∞). A Gaussian pair with a correlation of 0.8 given Z (truth by
  numerical integration of the definition), and the uniform law on two squares, where half of the
  product's mass lies where the joint law has none: there the sum over observed cells, as the paper
  prints it, cannot converge to the definition;
* ``condition``: N = 2000, X and Y independent, Z of 0 … 8 dimensions at a fixed ε.

Variables are hashed literally: every coordinate floored, then H2 onto F = c_H · N cells with
c_H = 10. Only ``dimensions`` is also done with the authors' p-stable projection to ⌊log2(N/10)⌋
directions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from snacs.files import read_json, write_json
from snacs.reporting.progress import Watch
from snacs.scores.acmi import divergence
from snacs.scores.hashing import VectorHash, direction_count
from snacs.scores.kernels import bin_squares, sort_cells, sum_pair
from snacs.scores.scaling import Cellwise
from snacs.store import Run, key_of

Floats = NDArray[np.floating[Any]]
Sampler = Callable[[np.random.Generator, int], tuple[Floats, Floats, Floats]]
Row = dict[str, Any]

SAMPLES = (500, 1000, 5000, 10000, 15000, 20000, 25000)
DIMENSIONS = (3, 10, 20, 30, 50)
PUBLISHED: dict[str, dict[str, tuple[float, ...]]] = {
    "samples": {
        "one": (0.0139, 0.0112, 0.0120, 0.0098, 0.0095, 0.0089, 0.0088),
        "exp": (0.0105, 0.0075, 0.0056, 0.0039, 0.0036, 0.0032, 0.0030),
    },
    "dimensions": {
        "one": (0.0824, 0.1963, 0.2577, 0.3016, 0.3294),
        "exp": (0.0336, 0.0471, 0.0626, 0.0767, 0.0800),
    },
}
"""Mean squared errors as the authors published them, φ = 1 and φ = exp(−‖act‖²/2)."""
CORRELATION = 0.8
WIDTH = 3.0
"""ε of N samples in d dimensions is WIDTH · N^(−1/(2d)) standard deviations."""
FIXED_WIDTH = 1.0
VERSION = 1
"""Part of every key: raised when the experiment changes."""


def width_of(samples: int, dims: int) -> float:
    """ε ∝ N^(−1/(2d)): it falls to 0 while ε^d N = WIDTH^d √N grows without bound.

    >>> round(width_of(10_000, 2), 3)
    0.3
    """
    return float(WIDTH * samples ** (-1 / (2 * dims)))


def gaussian_value(correlation: float, *, half_width: float = 9.0, points: int = 1201) -> float:
    """I(X; Y) of the definition, E_{P_X P_Y} g(dP_XY / dP_X dP_Y), for a Gaussian pair, φ = 1.

    Numerical integration over [−9, 9]² by the trapezoidal rule, which converges faster than any
    power for such smooth, vanishing functions.

    >>> round(gaussian_value(0.0), 9)
    0.0
    """
    grid = np.linspace(-half_width, half_width, points)
    x, y = grid[:, None], grid[None, :]
    product = np.exp(-(x**2 + y**2) / 2) / (2 * np.pi)
    rest = 1 - correlation**2
    exponent = (x**2 + y**2) / 2 - (x**2 - 2 * correlation * x * y + y**2) / (2 * rest)
    ratio = np.exp(np.minimum(exponent, 600.0)) / np.sqrt(rest)
    return float((product * divergence(ratio)).sum() * (grid[1] - grid[0]) ** 2)


def estimate_samples(
    values: Sequence[Floats],
    rng: np.random.Generator,
    *,
    width: float,
    support: str = "full",
    scaling: str = "one",
    kind: str = "floor",
) -> tuple[float, float]:
    """ACMI of (N, dims) samples of X, Y, Z, and the share of samples alone in their cell of Z.

    ``scaling``: "one", or "exp" for φ = exp(−‖(x̄, ȳ, z̄)‖²/2); no dimension of Z: eq. 1.
    """
    samples = len(values[0])
    numbered = []
    for value in values:
        dims = value.shape[1]
        hashing = VectorHash.draw(
            rng,
            kind=kind,
            dims=max(dims, 1),
            samples=samples,
            directions=direction_count(samples, None),
        )
        rows = np.ascontiguousarray(value.T, dtype=np.float32)
        inverse, shift = np.float32(1 / width), np.float32(rng.random())
        numbered.append(hashing(rows, inverse, shift) if dims else (np.zeros(samples, np.int32), 1))
    (x, bins_x), (y, bins_y), (z, cells_z) = numbered
    cells = sort_cells(z, cells_z, y, bins_y)
    cellwise = Cellwise.ONE if scaling == "one" else Cellwise.DECAY
    squares = tuple(
        bin_squares(codes, count, np.ascontiguousarray(value.T, dtype=np.float32))
        for (codes, count), value in zip(numbered, values, strict=True)
    )
    total = sum_pair(x, bins_x, cells, squares, int(cellwise), 0.5, support == "edges")
    return float(total) / (2 * samples), float(cells[5]) / samples


def independent(dims_x: int, dims_y: int, dims_z: int) -> Sampler:
    """Standard Gaussians without any dependence: the truth is 0 for every φ."""

    def draw(rng: np.random.Generator, samples: int) -> tuple[Floats, Floats, Floats]:
        x, y, z = (rng.standard_normal((samples, dims)) for dims in (dims_x, dims_y, dims_z))
        return x, y, z

    return draw


def correlated(correlation: float, dims_z: int) -> Sampler:
    """X = Z₁ + U, Y = Z₁ + V with corr(U, V) given: the truth is that of the pair (U, V).

    Given Z the shift by Z₁ is known and changes no density ratio. Half as loud as U and V, so that
    leaving Z out would show.
    """

    def draw(rng: np.random.Generator, samples: int) -> tuple[Floats, Floats, Floats]:
        u, noise = rng.standard_normal((2, samples, 1))
        v = correlation * u + np.sqrt(1 - correlation**2) * noise
        z = 0.5 * rng.standard_normal((samples, dims_z))
        common = z[:, :1] if dims_z else 0.0
        return u + common, v + common, z

    return draw


SQUARES = 1 / 3
"""Truth of :func:`two_squares`: dP_XY/(dP_X dP_Y) is 2 on half of the product's mass and 0 on the
rest, ½ g(2) + ½ g(0) = 1/12 + 1/4. Observed cells alone hold 1/12 of it."""


def two_squares(rng: np.random.Generator, samples: int) -> tuple[Floats, Floats, Floats]:
    """X and Y uniform on [0, 3], always in the same half; no Z. Bounded, as (A1) asks."""
    half = rng.integers(0, 2, (samples, 1))
    x, y = 1.5 * (half + rng.random((2, samples, 1)))
    return x, y, np.zeros((samples, 0))


@dataclass(frozen=True)
class Case:
    """One row of one table: what is drawn, how it is hashed, and what the truth is."""

    table: str
    label: Row
    sampler: Sampler
    samples: int
    width: float
    truth: float
    kinds: tuple[str, ...] = ("floor",)
    scalings: tuple[str, ...] = ("one",)

    def measure(self, trials: int, seed: int) -> Row:
        """Mean, bias and mean squared error over trials, for every hash, support and φ."""
        row: Row = {**self.label, "N": self.samples, "width": self.width, "truth": self.truth}
        for kind in self.kinds:
            for support in ("edges", "full"):
                for scaling in self.scalings:
                    # The same draws for every way, so that differences are the way's.
                    rng = np.random.default_rng([seed, self.samples, len(self.table)])
                    found = np.array(
                        [
                            estimate_samples(
                                self.sampler(rng, self.samples),
                                rng,
                                width=self.width,
                                support=support,
                                scaling=scaling,
                                kind=kind,
                            )
                            for _ in range(trials)
                        ]
                    )
                    values = found[:, 0]
                    name = f"{kind} {support} {scaling}"
                    row[f"{name} mean"] = float(values.mean())
                    row[f"{name} mse"] = float(((values - self.truth) ** 2).mean())
                    row[f"{kind} singletons"] = float(found[:, 1].mean())
        return row


def cases(*, samples: Sequence[int], dimensions: Sequence[int], most: int) -> list[Case]:
    """All rows of all tables; ``most`` is the largest N of the convergence table."""
    both = ("one", "exp")
    made = [
        Case("samples", {}, independent(1, 1, 2), n, width_of(n, 4), 0.0, scalings=both)
        for n in samples
    ]
    made += [
        Case(
            "dimensions",
            {"dims": dims},
            independent(dims, dims, dims),
            samples[min(2, len(samples) - 1)],
            FIXED_WIDTH,
            0.0,
            kinds=("floor", "projection"),
            scalings=both,
        )
        for dims in dimensions
    ]
    truth = gaussian_value(CORRELATION)
    sizes = [n for n in (500, 2000, 8000, 32000, 128000, 512000) if n <= most]
    for dims_z in (0, 1, 2):
        made += [
            Case(
                "convergence",
                {"law": "Gaussian", "dims of Z": dims_z},
                correlated(CORRELATION, dims_z),
                n,
                width_of(n, 2 + dims_z),
                truth,
            )
            for n in sizes
        ]
    made += [
        Case(
            "convergence",
            {"law": "two squares", "dims of Z": 0},
            two_squares,
            n,
            width_of(n, 2),
            SQUARES,
        )
        for n in sizes
    ]
    made += [
        Case(
            "condition",
            {"dims of Z": dims},
            independent(1, 1, dims),
            min(2000, most),
            FIXED_WIDTH,
            0.0,
        )
        for dims in range(9)
    ]
    return made


def reproduce_estimator(
    run: Run,
    *,
    trials: int = 10,
    seed: int = 0,
    watch: Watch,
    samples: Sequence[int] = SAMPLES,
    dimensions: Sequence[int] = DIMENSIONS,
    most: int = 512_000,
) -> dict[str, list[Row]]:
    """Measure all tables, one stage per row; the same call goes on where it stopped."""
    planned = cases(samples=samples, dimensions=dimensions, most=most)
    tables: dict[str, list[Row]] = {}
    for index, case in enumerate(planned):
        key = key_of(
            case=case.label,
            table=case.table,
            n=case.samples,
            width=case.width,
            trials=trials,
            seed=seed,
            version=VERSION,
        )

        def fill(folder: Path, case: Case = case) -> None:
            write_json(folder / "row.json", case.measure(trials, seed))

        words = "-".join([case.table, *(str(v) for v in case.label.values()), str(case.samples)])
        folder = run.once(f"rows/{words}", key, fill)
        tables.setdefault(case.table, []).append(read_json(folder / "row.json"))
        watch("estimator", index + 1, len(planned), f"{case.table}, N = {case.samples:,}")
    if tuple(samples) == SAMPLES and tuple(dimensions) == DIMENSIONS:
        _beside(tables)
    return tables


def _beside(tables: Mapping[str, list[Row]]) -> None:
    """Put the authors' published errors beside ours."""
    for table, published in PUBLISHED.items():
        for scaling, errors in published.items():
            for row, error in zip(tables[table], errors, strict=True):
                row[f"published {scaling} mse"] = error

"""The estimator against laws with known values, and the experiment that shows it."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import dblquad

from snacs.experiments.drawing import draw_estimator
from snacs.experiments.estimator import (
    CORRELATION,
    DIMENSIONS,
    PUBLISHED,
    SAMPLES,
    SQUARES,
    cases,
    correlated,
    estimate_samples,
    gaussian_value,
    independent,
    reproduce_estimator,
    two_squares,
    width_of,
)
from snacs.reporting.progress import silent
from snacs.scores.acmi import divergence, estimate
from snacs.store import Run


def mean_estimate(sampler, samples, width, *, trials=4, **options):
    rng = np.random.default_rng(0)
    found = [
        estimate_samples(sampler(rng, samples), rng, width=width, **options)[0]
        for _ in range(trials)
    ]
    return float(np.mean(found))


def test_gaussian_value_is_the_integral_of_the_definition():
    rho = 0.5

    def integrand(y, x):
        product = np.exp(-(x**2 + y**2) / 2) / (2 * np.pi)
        joint = np.exp(-(x**2 - 2 * rho * x * y + y**2) / (2 * (1 - rho**2)))
        joint /= 2 * np.pi * np.sqrt(1 - rho**2)
        return product * divergence(joint / product)

    adaptive, _ = dblquad(integrand, -7, 7, -7, 7, epsabs=1e-8)
    # Beyond 7 standard deviations lies less than 1e-11.
    assert gaussian_value(rho) == pytest.approx(adaptive, abs=1e-7)
    assert gaussian_value(rho) == pytest.approx(gaussian_value(rho, points=601), abs=1e-12)


def test_gaussian_value_grows_from_0_towards_1():
    values = [gaussian_value(rho) for rho in (0.0, 0.3, 0.6, 0.9, 0.99)]
    assert values[0] == pytest.approx(0, abs=1e-15)
    assert values == sorted(values)
    assert 0.5 < values[-1] < 1


def test_one_dimension_without_a_condition_is_the_reference():
    rng = np.random.default_rng(3)
    x, y, z = correlated(0.8, 0)(rng, 300)
    found, alone = estimate_samples(
        (x, y, z), np.random.default_rng(1), width=0.5, kind="projection"
    )
    again = np.random.default_rng(1)
    codes = [
        np.floor(np.float32(2) * v[:, 0].astype(np.float32) + np.float32(again.random()))
        for v in (x, y)
    ]
    expected = estimate(*(c.astype(int) for c in codes), np.zeros(300, int))
    assert found == pytest.approx(expected, abs=1e-12)
    assert alone == 0


@pytest.mark.parametrize("dims_z", [0, 1])
def test_full_support_converges_to_the_gaussian_value(dims_z):
    truth = gaussian_value(CORRELATION)
    errors = [
        abs(mean_estimate(correlated(CORRELATION, dims_z), n, width_of(n, 2 + dims_z)) - truth)
        for n in (500, 8000, 128000)
    ]
    # The bias falls like ε = 3 N^(−1/2d); the noise of the mean of 4 estimates is below 0.001.
    assert errors[-1] < 0.01
    assert errors[-1] <= errors[0] + 0.002


def test_edges_support_misses_the_mass_of_empty_cells():
    # Half of the product's mass lies where the joint law has none; it stays away however large N.
    n = 100_000
    edges = mean_estimate(two_squares, n, width_of(n, 2), support="edges")
    full = mean_estimate(two_squares, n, width_of(n, 2))
    # Bins across the border of the squares blur it: an error of the order of ε/3 = 0.06.
    assert full == pytest.approx(SQUARES, abs=0.04)
    assert edges == pytest.approx(1 / 12, abs=0.02)


def test_bias_of_a_wide_condition_rises_and_then_drowns_in_singletons():
    bias = [mean_estimate(independent(1, 1, dims), 2000, 1.0) for dims in (0, 2, 4, 8)]
    assert bias[0] < bias[1] < bias[2]
    assert bias[3] < bias[1]
    rng = np.random.default_rng(0)
    _, alone = estimate_samples(independent(1, 1, 8)(rng, 2000), rng, width=1.0)
    assert alone > 0.8  # it is not better, it is blind


def test_theorem_1_holds_for_the_widths():
    for dims in (2, 4):
        widths = [width_of(n, dims) for n in (10**2, 10**4, 10**6)]
        crowd = [width**dims * n for width, n in zip(widths, (10**2, 10**4, 10**6), strict=True)]
        assert widths[0] > widths[1] > widths[2]
        assert crowd[0] < crowd[1] < crowd[2]


def test_published_values_have_a_case_each():
    made = cases(samples=SAMPLES, dimensions=DIMENSIONS, most=1000)
    for table, published in PUBLISHED.items():
        for values in published.values():
            assert len(values) == sum(case.table == table for case in made)


def test_the_experiment_resumes_and_draws(tmp_path):
    sizes = {"samples": (60, 80), "dimensions": (2, 3), "most": 600}
    with Run(tmp_path / "run") as run:
        first = reproduce_estimator(run, trials=2, watch=silent, **sizes)
        made = {path: path.stat().st_mtime_ns for path in (run.folder / "rows").rglob("row.json")}
        again = reproduce_estimator(run, trials=2, watch=silent, **sizes)
        assert again == first
        assert made == {path: path.stat().st_mtime_ns for path in made}
        paths = draw_estimator(first, run.folder)
    assert [path.name for path in paths] == ["estimator.svg", "estimator.png"]
    assert paths[1].read_bytes().startswith(b"\x89PNG")
    assert "<svg" in paths[0].read_text()
    row = first["samples"][0]
    squared = row["floor full one mean"] ** 2
    assert row["floor full one mse"] >= squared  # error = squared bias + variance
    assert row["floor edges one mean"] <= row["floor full one mean"]

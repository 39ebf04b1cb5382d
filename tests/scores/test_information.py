"""Greedy elimination: by hand, against the plain reference, as properties, and what it promises."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from snacs.config import Config
from snacs.scores import score
from snacs.scores.information import (
    contributions,
    eliminate_reference,
    information,
    slopes,
)
from snacs.scores.kernels_information import eliminate
from snacs.values import Evidence, Layer


def _samples(seed: int, count: int, size: int, n: int = 60) -> np.ndarray:
    rng = np.random.default_rng(seed)
    mixing = rng.normal(size=(count * size, count * size))
    x = rng.normal(size=(n, count * size)) @ mixing
    return x - x.mean(axis=0)


def test_independent_inputs_go_in_order_of_their_variance() -> None:
    # var u = 4, 1, 9, all independent: dropping j loses exactly its share of the total of 14.
    covariance = np.diag([4.0, 1.0, 9.0])
    order, loss = eliminate(covariance[None], np.array([[4.0, 1.0, 9.0]]), np.array([14.0]))
    assert order[0].tolist() == [1, 0, 2]
    # cov² / var of what is kept: 13, then 9, then nothing.
    assert loss[0] == pytest.approx([1.0, 5.0, 14.0])


def test_kernels_that_cancel_cost_nothing_together() -> None:
    # u2 = −u1, so both can go without any loss, though each alone is as large as can be.
    covariance = np.array([[100.0, -100.0, 0.0], [-100.0, 100.0, 0.0], [0.0, 0.0, 1.0]])
    scores = information(np.ones((1, 3, 1)), covariance, importance=np.ones(1))
    assert scores[0, :2] == pytest.approx([0.0, 0.0], abs=1e-9)
    assert scores[0, 2] == pytest.approx(1.0)


def test_a_copy_is_free_and_its_twin_is_not() -> None:
    # u1 = u2: BatchNorm makes up for the lost half, so one of them costs nothing at all.
    covariance = np.array([[1.0, 1.0], [1.0, 1.0]])
    scores = information(np.ones((1, 2, 1)), covariance, importance=np.ones(1))
    assert sorted(scores[0]) == pytest.approx([0.0, 4.0])


def test_importance_multiplies_and_moves_no_order_within_a_filter() -> None:
    x = _samples(0, 5, 2)
    weight = np.random.default_rng(1).normal(size=(3, 5, 2))
    covariance = x.T @ x / len(x)
    plain = information(weight, covariance, importance=np.ones(3))
    scaled = information(weight, covariance, importance=np.array([1.0, 2.0, 0.5]))
    assert scaled == pytest.approx(plain * np.array([1.0, 2.0, 0.5])[:, None])


@given(st.integers(0, 10_000), st.integers(1, 7), st.integers(1, 3))
@settings(deadline=None, max_examples=60)
def test_kernel_follows_the_reference(seed: int, count: int, size: int) -> None:
    x = _samples(seed, count, size)
    rng = np.random.default_rng(seed + 1)
    weight, target = rng.normal(size=(2, count, size)), rng.normal(size=(2, len(x)))
    target += weight.reshape(2, -1) @ x.T
    target -= target.mean(axis=1, keepdims=True)
    table = contributions(weight, x.T @ x / len(x))
    cross = (weight.reshape(2, -1) * (target @ x / len(x))).reshape(2, count, size).sum(axis=2)
    power = (target**2).mean(axis=1)
    order, loss = eliminate(table, cross, power)
    for i in range(2):
        steps = eliminate_reference(table[i], cross[i], float(power[i]))
        assert order[i].tolist() == [kernel for kernel, _ in steps]
        # Sums are updated instead of taken again: rounding of at most c_in² operations.
        assert loss[i] == pytest.approx([value for _, value in steps], rel=1e-8, abs=1e-8)


@given(st.integers(0, 10_000), st.integers(2, 6), st.integers(1, 3))
@settings(deadline=None, max_examples=40)
def test_contributions_and_losses_are_those_of_the_samples(
    seed: int, count: int, size: int
) -> None:
    x = _samples(seed, count, size)
    weight = np.random.default_rng(seed).normal(size=(1, count, size))
    parts = np.einsum("njk,jk->jn", x.reshape(len(x), count, size), weight[0])
    table = contributions(weight, x.T @ x / len(x))
    assert table[0] == pytest.approx(parts @ parts.T / len(x), rel=1e-9, abs=1e-9)
    whole = parts.sum(axis=0)
    order, loss = eliminate(table, table.sum(axis=2), table.sum(axis=(1, 2)))
    kept = [j for j in range(count) if j != order[0, 0]]
    correlation = np.corrcoef(parts[kept].sum(axis=0), whole)[0, 1]
    expected = whole.var() * (1 - max(correlation, 0.0) ** 2)
    assert loss[0, 0] == pytest.approx(expected, rel=1e-6, abs=1e-9 * whole.var())


@given(st.lists(st.floats(0, 100), min_size=1, max_size=12))
@settings(deadline=None, max_examples=60)
def test_slopes_rise_along_the_order_and_add_up(heights: list[float]) -> None:
    loss = np.array([heights])
    order = np.arange(len(heights))[None]
    found = slopes(order, loss)[0]
    assert (np.diff(found) >= -1e-9 * max(1.0, max(heights))).all()
    assert found.sum() == pytest.approx(heights[-1], abs=1e-9)
    assert (np.cumsum(found) <= loss[0] + 1e-9 * max(1.0, max(heights))).all()


def _evidence(groups: int) -> Evidence:
    rng = np.random.default_rng(3)
    layer = Layer("conv", "Conv2d", 4, 3, 4, groups=groups, positions=9)
    channels = layer.channels
    windows = rng.normal(size=(200, channels, 4)).astype(np.float32)
    return Evidence(
        layer=layer,
        weight=rng.normal(size=(4, 3, 4)).astype(np.float32),
        bias=None,
        windows=windows,
        inputs=windows[:, :, 0],
        outputs=np.zeros((200, 4), np.float32),
        window_means=windows,
        input_rms=np.ones(channels, np.float32),
        labels=np.zeros(200, np.int64),
        importance=np.array([1.0, 2.0, 3.0, 4.0]),
    )


def test_groups_read_their_own_channels() -> None:
    evidence = _evidence(groups=2)
    found = score(evidence, Config(score="information"), seed=0).values
    x = evidence.windows[:, 3:].reshape(200, -1).astype(np.float64)
    x -= x.mean(axis=0)
    expected = information(
        evidence.weight[2:].astype(np.float64),
        x.T @ x / 200,
        importance=np.array([3.0, 4.0]),
    )
    # float32 products of 200 samples, then rounding to a millionth of the largest.
    assert found[2:] == pytest.approx(expected, rel=1e-4, abs=1e-5 * float(found.max()))


def test_threads_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("snacs.scores.information.BLOCK", 8)  # one filter per block
    evidence = _evidence(groups=1)
    one = score(evidence, Config(score="information"), seed=0, threads=1).values
    two = score(evidence, Config(score="information"), seed=0, threads=2).values
    assert (one == two).all()
    assert (one > 0).any()

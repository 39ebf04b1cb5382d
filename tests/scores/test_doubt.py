"""Doubt is what noise on the inputs does, between the score itself and the magnitude."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from snacs.scores.doubt import doubting
from snacs.scores.information import information
from snacs.scores.surgeon import surgeon

SCORES = pytest.mark.parametrize("score", [information, surgeon])


def layer(seed: int, filters: int, count: int, size: int):
    """Weights, inputs of few directions and importances."""
    rng = np.random.default_rng(seed)
    inputs = rng.normal(size=(50, 3)) @ rng.normal(size=(3, count * size))
    inputs += 0.1 * rng.normal(size=inputs.shape)
    return rng.normal(size=(filters, count, size)), inputs, rng.uniform(0.5, 2, size=filters)


@SCORES
@settings(deadline=None, max_examples=25)
@given(
    seed=st.integers(0, 10**6),
    count=st.integers(2, 6),
    size=st.sampled_from([1, 4]),
    doubt=st.floats(0, 5),
)
def test_is_the_score_of_inputs_with_noise_of_their_own(score, seed, count, size, doubt):
    # In second moments, so exact: no tolerance for the number of samples is needed.
    weight, inputs, importance = layer(seed, 2, count, size)
    covariance = np.cov(inputs.T, bias=True).reshape(count * size, -1)
    noisy = covariance + doubt * np.diagonal(covariance).mean() * np.eye(len(covariance))
    expected = score(weight, noisy, importance=importance)
    found = doubting(score, doubt)(weight, covariance, importance=importance)
    assert found == pytest.approx(expected, rel=1e-6, abs=1e-9)


@SCORES
def test_no_doubt_changes_nothing(score):
    weight, inputs, importance = layer(0, 3, 5, 1)
    covariance = np.cov(inputs.T, bias=True)
    cross = 1.1 * weight[:, :, 0] @ covariance
    power = 2 * (weight[:, :, 0] @ covariance * weight[:, :, 0]).sum(axis=1)
    options = {"importance": importance, "cross": cross, "power": power}
    plain = score(weight, covariance, **options)
    assert doubting(score, 0.0)(weight, covariance, **options) == pytest.approx(plain, rel=1e-9)


@SCORES
def test_much_doubt_is_the_magnitude(score):
    weight, inputs, _ = layer(1, 2, 6, 1)
    covariance = np.cov(inputs.T, bias=True)
    found = doubting(score, 1e6)(weight, covariance, importance=np.ones(2))
    magnitude = weight[:, :, 0] ** 2
    # What was seen is a millionth of the variance; inputs vary by a factor of some ten around it.
    assert found / found.sum() == pytest.approx(magnitude / magnitude.sum(), rel=1e-4)


def test_a_wanted_output_of_its_own_is_wanted_under_noise_too():
    # By hand: one input of variance 4, w = 1, the output wanted is 2x. Noise of variance 4 more,
    # which the dense filter (w = 1) passes on: cov(x, t) = 8 + 4, var x = 8, so w = 12/8.
    options = {"importance": np.ones(1), "cross": np.array([[8.0]]), "power": np.array([16.0])}
    found = doubting(surgeon, 1.0)(np.ones((1, 1, 1)), np.array([[4.0]]), **options)
    assert found.item() == pytest.approx(1.5**2 * 8, rel=5e-3)  # its own ridge is a thousandth

"""The closed form against least squares without each kernel, and what it must obey."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from snacs.scores.surgeon import surgeon, surgeon_reference


def problem(seed: int, filters: int, count: int, size: int):
    rng = np.random.default_rng(seed)
    basis = rng.normal(size=(count * size, count * size))
    weight = rng.normal(size=(filters, count, size))
    return weight, basis @ basis.T / len(basis)


@settings(deadline=None, max_examples=40)
@given(
    seed=st.integers(0, 10**6),
    filters=st.integers(1, 3),
    count=st.integers(2, 5),
    size=st.sampled_from([1, 4, 9]),
)
def test_is_the_error_of_the_best_fit_without_the_kernel(seed, filters, count, size):
    weight, covariance = problem(seed, filters, count, size)
    found = surgeon(weight, covariance, importance=np.ones(filters))
    assert found == pytest.approx(surgeon_reference(weight, covariance), rel=1e-6, abs=1e-9)


def test_by_hand():
    # Independent inputs of variances 1 and 4: nothing can stand in, so the score is w² (σ² + ρ).
    weight = np.array([[[3.0], [1.0]]])
    covariance = np.diag([1.0, 4.0])
    found = surgeon(weight, covariance, importance=np.ones(1))
    assert found == pytest.approx(np.array([[9 * 1.0025, 4.0025]]))


def test_another_target_counts_by_its_own_solution():
    weight, covariance = problem(1, 2, 3, 1)
    covariance += 5 * np.eye(3)  # far from singular: the pull to the old weights hardly counts
    wanted = 2 * weight[:, :, 0] @ covariance
    doubled = surgeon(weight, covariance, importance=np.ones(2), cross=wanted)
    plain = surgeon(weight, covariance, importance=np.ones(2))
    assert doubled == pytest.approx(4 * plain, rel=0.02)


def test_rows_count_by_the_root_of_their_importance():
    weight, covariance = problem(2, 2, 3, 1)
    plain = surgeon(weight, covariance, importance=np.ones(2))
    found = surgeon(weight, covariance, importance=np.array([1.0, 9.0]))
    assert found == pytest.approx(plain * np.array([[1.0], [3.0]]))


def test_silent_inputs_score_nothing():
    assert (surgeon(np.ones((1, 2, 1)), np.zeros((2, 2)), importance=np.ones(1)) == 0).all()

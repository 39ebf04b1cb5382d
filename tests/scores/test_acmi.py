"""The reference estimator against tables worked out by hand and closed forms."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from snacs.errors import InputError
from snacs.scores.acmi import (
    bin_means,
    cell_norms,
    count_cells,
    divergence,
    estimate,
    estimate_closed,
    estimate_table,
)

EXACT = 1e-12
"""Sums of a few dozen double-precision terms of order 1."""

codes = st.integers(1, 40).flatmap(
    lambda n: st.tuples(*[st.lists(st.integers(0, 4), min_size=n, max_size=n)] * 3)
)


def test_divergence_is_zero_at_independence_and_half_at_no_mass():
    assert divergence(np.array([0.0, 1.0, 2.0])) == pytest.approx([0.5, 0.0, 1 / 6])


def test_hand_computed_table():
    # X, Y counts [[2, 1], [0, 1]], Z constant, N = 4. Margins of X 3, 1, of Y 2, 2; α = 3/2, 3/2,
    # 1/2, 1/2. Σ (r − α)²/(r + α) = (1/4)/(7/2) + (1/4)/(5/2) + (1/4)/(1/2) + (1/4)/(3/2)
    # = 1/14 + 1/10 + 1/2 + 1/6 = 88/105; over 2N = 8: 11/105. Without the empty cell: 71/210 / 8.
    x, y = np.array([0, 0, 0, 1]), np.array([0, 0, 1, 1])
    z = np.zeros(4, int)
    assert estimate(x, y, z) == pytest.approx(11 / 105, abs=EXACT)
    assert estimate(x, y, z, support="edges") == pytest.approx(71 / 1680, abs=EXACT)


def test_hand_computed_table_with_two_conditions():
    # Z = 0 holds (0,0), (1,1): α = 1/2 in four cells, Σ = 2·(1/4)/(3/2) + 2·(1/4)/(1/2) = 4/3.
    # Z = 1 holds (0,0), (0,1): Y is independent of a constant X, Σ = 0. N = 4, over 8: 1/6.
    x, y, z = np.array([0, 1, 0, 0]), np.array([0, 1, 0, 1]), np.array([0, 0, 1, 1])
    assert estimate(x, y, z) == pytest.approx(1 / 6, abs=EXACT)
    assert estimate(x, y, z, support="edges") == pytest.approx(1 / 24, abs=EXACT)


@pytest.mark.parametrize("support", ["full", "edges"])
def test_exact_product_table_scores_zero(support):
    table = np.einsum("i,j,k->ijk", [1, 2, 5], [3, 1], [1, 4])
    assert estimate_table(table, support=support) == pytest.approx(0, abs=EXACT)


@pytest.mark.parametrize("cells", [1, 2, 3, 7, 50])
def test_identical_variables_with_equal_cells(cells):
    x = np.repeat(np.arange(cells), 4)
    z = np.zeros_like(x)
    full, edges = 1 - 2 / (cells + 1), 0.5 + 1 / (2 * cells) - 2 / (cells + 1)
    assert estimate(x, x, z) == pytest.approx(full, abs=EXACT)
    assert estimate(x, x, z, support="edges") == pytest.approx(edges, abs=EXACT)


@pytest.mark.parametrize("flip", [0.0, 0.1, 0.25, 0.5])
def test_binary_symmetric_channel_has_the_known_divergence(flip):
    # Fair bit through a channel that flips with probability p: t = 2(1 − p) on the diagonal, 2p
    # off it, each with product mass 1/2: I = ½ g(2 − 2p) + ½ g(2p).
    table = np.array([[1 - flip, flip], [flip, 1 - flip]])[:, :, None] * 2000
    known = 0.5 * divergence(np.array([2 - 2 * flip, 2 * flip])).sum()
    assert estimate_table(table.round().astype(int)) == pytest.approx(known, abs=EXACT)


@pytest.mark.parametrize("symbols", [2, 3, 10])
@pytest.mark.parametrize("lost", [0.0, 0.25, 1.0])
def test_erasure_channel_has_the_known_divergence(symbols, lost):
    # One of m symbols arrives whole or, with probability p, as a blank. Given that it arrives,
    # t = m for the right symbol and 0 for the m − 1 others; a blank says nothing, t = 1:
    # I = (1 − p) · (g(m)/m + (1 − 1/m) g(0)). Edges leave the zeros out.
    arrives = np.eye(symbols) * (1 - lost)
    table = np.concatenate([arrives, np.full((symbols, 1), lost)], axis=1)[:, :, None] * 400
    right, wrong = divergence(np.array([symbols, 0.0]))
    edges = (1 - lost) * right / symbols
    full = edges + (1 - lost) * (1 - 1 / symbols) * wrong
    assert estimate_table(table.astype(int)) == pytest.approx(full, abs=EXACT)
    assert estimate_table(table.astype(int), support="edges") == pytest.approx(edges, abs=EXACT)


def test_conditional_value_is_the_mean_over_conditions_of_the_unconditional_one():
    rng = np.random.default_rng(0)
    first, second = rng.integers(0, 9, (3, 4, 1)), rng.integers(1, 9, (3, 4, 1))
    both = np.concatenate([first, second], axis=2)
    share = np.array([first.sum(), second.sum()]) / both.sum()
    expected = share @ [estimate_table(first), estimate_table(second)]
    assert estimate_table(both) == pytest.approx(expected, abs=EXACT)


def test_codes_need_not_be_dense_or_positive():
    rng = np.random.default_rng(1)
    x, y, z = rng.integers(0, 4, (3, 80))
    assert estimate(x * 7 - 20, 5 - y, z * 1000) == pytest.approx(estimate(x, y, z), abs=EXACT)


@given(codes)
@settings(deadline=None, max_examples=60)
def test_bounds_of_equation_2_closed_sums_and_symmetry(drawn):
    x, y, z = (np.array(part) for part in drawn)
    full, edges = estimate(x, y, z), estimate(x, y, z, support="edges")
    assert -EXACT <= edges <= full + EXACT
    assert full <= 1  # ½ E[t + 1] = 1 for φ = 1
    assert estimate_closed(x, y, z) == pytest.approx(full, abs=EXACT)
    assert estimate_closed(x, y, z, support="edges") == pytest.approx(edges, abs=EXACT)
    assert estimate(y, x, z) == pytest.approx(full, abs=EXACT)


@given(codes, st.integers(0, 2**32 - 1))
@settings(deadline=None, max_examples=40)
def test_bound_of_equation_2_for_any_scaling(drawn, seed):
    x, y, z = (np.array(part) for part in drawn)
    table = count_cells(x, y, z)
    scaling = np.random.default_rng(seed).uniform(0, 3, table.shape)
    joint = table / table.sum()
    expected = joint.sum(1, keepdims=True) * joint.sum(0, keepdims=True) / joint.sum((0, 1))
    bound = 0.5 * (scaling * (joint + expected)).sum()
    assert -EXACT <= estimate(x, y, z, scaling=scaling) <= bound + EXACT


def test_constant_variables_score_zero():
    rng = np.random.default_rng(2)
    x, z = rng.integers(0, 5, (2, 50))
    constant = np.full(50, 3)
    alone = np.arange(50)
    assert estimate(constant, x, z) == pytest.approx(0, abs=EXACT)
    assert estimate(x, constant, z) == pytest.approx(0, abs=EXACT)
    assert estimate(x, rng.integers(0, 5, 50), alone) == pytest.approx(0, abs=EXACT)


def test_cell_norms_use_bin_means_and_cover_empty_cells():
    x, y, z = np.array([0, 0, 1]), np.array([0, 1, 1]), np.zeros(3, int)
    values = np.array([[1.0], [3.0], [6.0]])
    assert bin_means(x, values)[:, 0] == pytest.approx([2, 6])
    norms = cell_norms((x, y, z), (values, values, np.zeros((3, 1))))
    assert norms[1, 0, 0] == pytest.approx(np.sqrt(36 + 1))  # no sample has x = 1, y = 0
    assert norms[0, 1, 0] == pytest.approx(np.sqrt(4 + 4.5**2))


def test_unknown_support_is_refused_with_a_hint():
    with pytest.raises(InputError, match="Did you mean 'edges'"):
        estimate(np.zeros(2, int), np.zeros(2, int), np.zeros(2, int), support="edge")

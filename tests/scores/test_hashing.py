"""Bins, shifts, projections and the paper's H2."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from snacs.scores.hashing import (
    BUCKETS_PER_SAMPLE,
    CODE_LIMIT,
    Buckets,
    VectorHash,
    bin_codes,
    direction_count,
    draw_directions,
    draw_shifts,
    mean_deviation,
)


def same_partition(first: np.ndarray, second: np.ndarray) -> bool:
    """True if two labellings put the same samples together."""
    pairs = len(np.unique(np.stack([first, second]), axis=1).T)
    return pairs == len(np.unique(first)) == len(np.unique(second))


def test_bins_are_floors_with_the_shift_added():
    values = np.array([-1.0, -0.01, 0.0, 0.49, 0.5, 2.0], np.float32)
    assert bin_codes(values, np.float32(2), np.float32(0)).tolist() == [-2, -1, 0, 0, 1, 4]
    assert bin_codes(values, np.float32(2), np.float32(0.5)).tolist() == [-2, 0, 0, 1, 1, 4]


def test_unit_is_the_mean_deviation_and_vanishes_with_it():
    assert mean_deviation(np.array([[0.0, 5.0], [2.0, 5.0]])) == pytest.approx(0.5)
    assert mean_deviation(np.array([[0.0], [1e-35]])) == 0


def test_enormous_values_saturate():
    codes = bin_codes(np.array([-1e30, 1e30], np.float32), np.float32(1), np.float32(0))
    assert codes.tolist() == [-CODE_LIMIT, CODE_LIMIT]


@pytest.mark.parametrize("count", [1, 4, 7])
def test_shifts_are_spread_evenly_over_the_bin(count):
    shifts = draw_shifts(np.random.default_rng(0), count)
    assert shifts.shape == (count, 3)
    strata = np.sort(np.floor(shifts * count), axis=0)
    assert (strata == np.arange(count)[:, None]).all()


def test_direction_count_follows_the_authors_where_none_is_given():
    assert [direction_count(n, None) for n in (5, 20, 1000, 2000)] == [1, 1, 6, 7]
    assert direction_count(2000, 3) == 3


def test_directions_have_unit_length():
    directions = draw_directions(np.random.default_rng(0), 5, 9)
    assert np.linalg.norm(directions, axis=1) == pytest.approx(np.ones(5))


@given(st.integers(1, 6), st.integers(2, 60), st.integers(0, 1000))
@settings(deadline=None, max_examples=40)
def test_low_vectors_share_a_cell_exactly_if_all_bins_agree(dims, samples, seed):
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(dims, samples)).astype(np.float32)
    hashing = VectorHash.draw(rng, kind="projection", dims=dims, samples=samples, directions=dims)
    numbers, count = hashing(values, np.float32(1), np.float32(0.3))
    codes = bin_codes(values, np.float32(1), np.float32(0.3))
    _, expected = np.unique(codes, axis=1, return_inverse=True)
    assert same_partition(numbers, expected.reshape(-1))
    assert sorted(set(numbers.tolist())) == list(range(count))


def test_wide_vectors_are_projected_first():
    rng = np.random.default_rng(3)
    values = rng.normal(size=(9, 50)).astype(np.float32)
    hashing = VectorHash.draw(rng, kind="projection", dims=9, samples=50, directions=2)
    assert hashing.directions is not None
    projected = (hashing.directions @ values).astype(np.float32)
    assert hashing.project(values) == pytest.approx(projected, abs=1e-6)  # float32 sums of 9
    numbers, _ = hashing(values, np.float32(1), np.float32(0))
    codes = bin_codes(hashing.project(values), np.float32(1), np.float32(0))
    _, expected = np.unique(codes, axis=1, return_inverse=True)
    assert same_partition(numbers, expected.reshape(-1))


def test_buckets_map_into_range_and_keep_equal_vectors_together():
    rng = np.random.default_rng(4)
    codes = rng.integers(-50, 50, size=(7, 300))
    codes[:, 200:] = codes[:, :100]
    buckets = Buckets.draw(rng, 7, 300)
    hashed = buckets(codes)
    assert buckets.count == BUCKETS_PER_SAMPLE * 300
    assert hashed.min() >= 0
    assert hashed.max() < buckets.count
    assert (hashed[200:] == hashed[:100]).all()


def test_bucket_collisions_are_as_rare_as_for_a_uniform_hash():
    # 2000 distinct vectors in F = 20000 buckets: N²/2F = 100 colliding pairs expected, with a
    # deviation of about 10; 160 is six deviations away.
    rng = np.random.default_rng(5)
    codes = np.stack([np.arange(2000) % 50, np.arange(2000) // 50])
    counts = np.bincount(Buckets.draw(rng, 2, 2000)(codes))
    assert 40 < (counts * (counts - 1) // 2).sum() < 160


def test_forms_add_up_so_that_a_coordinate_can_be_left_out():
    rng = np.random.default_rng(6)
    codes = rng.integers(-1000, 1000, size=(5, 40))
    buckets = Buckets.draw(rng, 5, 40)
    rest = buckets.form(codes) - buckets.form(codes[2:3], slice(2, 3))
    without = codes.copy()
    without[2] = 0
    assert (buckets.finish(rest % (2**31 - 1)) == buckets(without)).all()

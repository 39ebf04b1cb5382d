"""Numbering, sorting and the one-pair kernel against plain numpy and the reference."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from snacs.scores.acmi import bin_means, estimate
from snacs.scores.kernels import (
    bin_squares,
    number_codes,
    number_keys,
    scale_cell,
    sort_by_table,
    sort_cells,
    sum_pair,
)
from snacs.scores.kernels_columns import column_deviations, turn, turn_chosen

NO_SQUARES = (np.zeros(1), np.zeros(1), np.zeros(1))

sizes = st.tuples(st.integers(1, 50), *[st.integers(1, 6)] * 3, st.integers(0, 10**6))


def draw_codes(size: tuple[int, int, int, int, int]) -> list[np.ndarray]:
    samples, *bins, seed = size
    rng = np.random.default_rng(seed)
    return [number_codes(rng.integers(0, count, (1, samples)))[0] for count in bins]


@pytest.mark.parametrize("span", [40, 2**40])  # by plain table, by open addressing
def test_numbers_follow_first_appearance(span):
    keys = np.array([5, 3, 5, 39, 3, 0, span - 1], dtype=np.int64)
    numbers, count = number_keys(keys, span)
    expected = [0, 1, 0, 2, 1, 3, 2 if span == 40 else 4]
    assert numbers.tolist() == expected
    assert count == max(expected) + 1


@pytest.mark.parametrize("spread", [3, 10**4, 2**29])
@pytest.mark.parametrize("dims", [1, 2, 5])
def test_columns_are_numbered_exactly_also_where_their_product_overflows(dims, spread):
    rng = np.random.default_rng(dims)
    codes = rng.integers(-spread, spread, (dims, 60)).astype(np.int32)
    codes[:, 30:] = codes[:, rng.integers(0, 30, 30)]
    numbers, count = number_codes(codes)
    _, expected = np.unique(codes, axis=1, return_inverse=True)
    expected = expected.reshape(-1)
    assert count == expected.max() + 1
    assert len(np.unique(np.stack([numbers, expected]), axis=1).T) == count


def test_both_ways_to_sort_agree():
    rng = np.random.default_rng(0)
    y, z = (rng.integers(0, count, 300).astype(np.int32) for count in (3, 40))
    for cells, bins in ((40, 3), (4000, 3)):  # through a table; too large for one
        found = sort_cells(z, cells, y, bins)
        for one, other in zip(found, sort_by_table(z, cells, y, bins), strict=True):
            assert np.array_equal(one, other)


def test_turning_and_deviations_equal_numpy_bit_by_bit():
    values = np.random.default_rng(0).normal(3, 2, (77, 130)).astype(np.float32)
    factor = np.float32(0.3)
    turned = np.empty((130, 77), np.float32)
    for first, last in ((0, 50), (50, 130)):  # in parts, as threads take them
        turn(values, factor, first, last, turned)
    assert np.array_equal(turned, values.T * factor)
    expected = values.std(axis=0, dtype=np.float64)
    assert np.array_equal(column_deviations(values), expected)


def test_chosen_columns_are_turned_and_multiplied():
    values = np.random.default_rng(0).normal(size=(70, 40))
    chosen, factors = np.array([3, 39, 0]), np.array([2.0, 0.0, -1.0])
    expected = values[:, chosen].T * factors[:, None]
    turned = np.empty((3, 70))
    for first, last in ((0, 2), (2, 3)):
        turn_chosen(values, chosen, factors, first, last, turned)
    assert np.array_equal(turned, expected)


@given(sizes)
@settings(deadline=None, max_examples=40)
def test_sorting_keeps_exactly_the_informative_samples_in_order(size):
    _, y, z = draw_codes(size)
    cells = z.max() + 1
    order, ends, bins, cell_ends, numbers, singletons = sort_cells(z, cells, y, y.max() + 1)
    informative = [len(np.unique(y[z == cell])) > 1 for cell in range(cells)]
    kept = np.flatnonzero(np.array(informative)[z])
    assert sorted(order.tolist()) == kept.tolist()
    assert order.tolist() == kept[np.lexsort((kept, y[kept], z[kept]))].tolist()
    assert singletons == (np.bincount(z) == 1).sum()
    assert numbers.tolist() == np.flatnonzero(informative).tolist()
    starts = [0, *ends][: len(ends)]
    for start, end, code in zip(starts, ends, bins, strict=True):
        assert (y[order[start:end]] == code).all()
    assert (cell_ends[-1] if len(cell_ends) else 0) == len(ends)


@given(sizes, st.sampled_from(["full", "edges"]))
@settings(deadline=None, max_examples=60)
def test_pair_kernel_equals_the_reference(size, support):
    x, y, z = draw_codes(size)
    cells = sort_cells(z, z.max() + 1, y, y.max() + 1)
    total = sum_pair(x, x.max() + 1, cells, NO_SQUARES, 0, 0.0, support == "edges")
    # Both in double precision.
    assert total / (2 * len(x)) == pytest.approx(estimate(x, y, z, support=support), abs=1e-12)


def test_scaling_of_a_cell():
    assert scale_cell(4.0, 0, 1.0) == 1
    assert scale_cell(4.0, 1, 1.0) == 2
    assert scale_cell(4.0, 2, 0.5) == pytest.approx(np.exp(-2))


def test_squares_of_bin_means():
    rng = np.random.default_rng(0)
    codes, _ = number_codes(rng.integers(0, 5, (1, 40)))
    values = rng.normal(size=(3, 40)).astype(np.float32)
    expected = (bin_means(codes, values.T) ** 2).sum(axis=1)
    assert bin_squares(codes, 6, values) == pytest.approx([*expected, 0.0])

"""Groups of contiguous filters, within the groups of a convolution."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from snacs.scores.grouping import blocks_of, group_norms, split
from snacs.values import Layer


@given(st.integers(1, 40), st.integers(1, 40))
def test_split_is_array_split_with_single_filters_at_most(count, groups):
    expected = [part for part in np.array_split(np.arange(count), groups) if len(part)]
    got = [np.arange(count)[part] for part in split(count, groups)]
    assert [part.tolist() for part in got] == [part.tolist() for part in expected]


def test_no_groups_means_single_filters():
    (block,) = blocks_of(Layer("a", "Conv2d", 3, 2, 9), None)
    assert block.rows == (slice(0, 1), slice(1, 2), slice(2, 3))
    assert block.columns == (slice(0, 1), slice(1, 2))
    assert block.single


def test_groups_never_straddle_convolution_groups():
    layer = Layer("a", "Conv2d", 8, 3, 9, groups=2)
    first, second = blocks_of(layer, 4)
    assert first.rows == (slice(0, 2), slice(2, 4))
    assert second.rows == (slice(4, 6), slice(6, 8))
    assert second.channels(second.columns[-1]) == slice(5, 6)
    assert not first.single


def test_norm_of_a_group_is_the_root_mean_square_of_its_kernels():
    weight = np.array([[[3.0, 4.0], [0.0, 1.0]]])
    layer = Layer("a", "Conv2d", 1, 2, 2)
    assert group_norms(weight, blocks_of(layer, None)) == pytest.approx(np.array([[5, 1]]))
    assert group_norms(weight, blocks_of(layer, 1)) == pytest.approx(np.full((1, 2), 13**0.5))

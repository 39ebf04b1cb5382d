"""The kernels on wide vectors say what the portable ones say."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from snacs.scores.kernels import sort_cells
from snacs.scores.kernels_layer import pack_children, sum_children
from snacs.scores.kernels_wide import STRAIGHT_FROM, by_sample, sum_children_wide
from snacs.scores.parallel import Threads
from snacs.scores.vectors import AVAILABLE, CHILDREN
from snacs.scores.vectors_counting import STRAIGHT

needs_vectors = pytest.mark.skipif(not AVAILABLE, reason="no AVX-512, or numba is switched off")


def _both(x, z, y):
    bins = x.max(axis=1).astype(np.int64) + 1
    cells = sort_cells(z, int(z.max()) + 1, y, int(y.max()) + 1)
    codes, _, place = pack_children(x, bins, Threads(1))
    portable = sum_children(codes, codes.max(axis=2), cells, False).reshape(-1)[place]
    codes, most, place = pack_children(x, bins, Threads(1), CHILDREN)
    return portable, sum_children_wide(codes, most, cells).reshape(-1)[place]


@needs_vectors
@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 10_000),
    samples=st.integers(2, 900),
    children=st.sampled_from([1, 63, 64, 65, 130]),
    bins=st.sampled_from([2, 3, 4, 5, 9, 16, 17, 60, 256]),
    cells=st.integers(1, 60),
    y_bins=st.integers(1, 9),
)
@example(seed=0, samples=291, children=1, bins=256, cells=1, y_bins=4)  # long sums were inexact
def test_same_sums_as_the_portable_kernel(seed, samples, children, bins, cells, y_bins):
    # One cell of 900 samples needs more than a byte; many cells of few are compared by sample.
    rng = np.random.default_rng(seed)
    x = np.minimum(rng.geometric(2 / bins, size=(children, samples)) - 1, bins - 1)
    z = np.minimum(rng.geometric(1 / cells, size=samples) - 1, cells - 1).astype(np.int32)
    y = rng.integers(0, y_bins, size=samples).astype(np.int32)
    portable, wide = _both(x.astype(np.int32), z, y)
    np.testing.assert_allclose(wide, portable, rtol=0, atol=2e-6 * samples)


@needs_vectors
@pytest.mark.parametrize("bins", [STRAIGHT, STRAIGHT + 4])
def test_every_way_through_a_cell_is_taken(bins):
    # Few samples per bin: by sample. Many: by plane, in bytes up to 255, in floats beyond; of few
    # bins straight from the codes, of more from a copy.
    assert by_sample(4, 3, 12)
    assert not by_sample(100, 3, STRAIGHT + 4)
    rng = np.random.default_rng(0)
    for samples in (4, STRAIGHT_FROM, STRAIGHT_FROM + 1, 100, 255, 256, 700):
        x = rng.integers(0, bins, size=(70, samples)).astype(np.int32)
        y = (np.arange(samples) % 3).astype(np.int32)
        portable, wide = _both(x, np.zeros(samples, np.int32), y)
        assert portable.max() > 0
        np.testing.assert_allclose(wide, portable, rtol=0, atol=2e-6 * samples)

"""Small PNGs: read back by another library, bit for bit."""

from __future__ import annotations

import base64
import io

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from snacs.reporting.pictures import block_means, mask_picture, png, score_picture, side_for


def _read(text: str) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(text))))


@settings(deadline=None, max_examples=25)
@given(st.integers(1, 40), st.integers(1, 40), st.integers(0, 99))
def test_pillow_reads_the_same_pixels(rows, columns, seed):
    rng = np.random.default_rng(seed)
    grey = rng.integers(0, 256, (rows, columns), dtype=np.uint8)
    np.testing.assert_array_equal(_read(png(grey)), grey)
    bits = rng.random((rows, columns)) < 0.5
    np.testing.assert_array_equal(_read(png(bits, bits=1)).astype(bool), bits)


def test_scores_are_eight_bits_of_their_range():
    values = np.array([[0.5, 1.0], [0.75, 0.6]])
    found = score_picture(values, side=64)
    shown = found["low"] + _read(found["png"]) / 255 * (found["high"] - found["low"])
    # Half of one of 255 steps of a range of 0.5.
    np.testing.assert_allclose(shown, values, atol=0.5 / 255 / 2 + 1e-12)
    assert (found["rows"], found["columns"], found["tall"], found["wide"]) == (2, 2, 1, 1)


def test_equal_scores_make_a_picture_too():
    found = score_picture(np.full((3, 3), 0.25), side=64)
    assert found["low"] == found["high"] == 0.25
    assert _read(found["png"]).max() == 0


def test_a_large_mask_is_shown_as_the_kept_share_of_blocks():
    keep = np.zeros((100, 10), dtype=bool)
    keep[:25] = True
    found = mask_picture(keep, side=50)
    assert (found["rows"], found["columns"], found["tall"], found["wide"]) == (50, 10, 2, 1)
    expected = np.zeros(50)
    expected[:12], expected[12] = 255, 128  # rows 24 and 25: one kept, one gone
    np.testing.assert_array_equal(_read(found["png"])[:, 3], expected)


def test_blocks_hold_means_of_what_they_cover():
    values = np.random.default_rng(0).random((7, 5))
    blocks = block_means(values, 3)
    assert blocks.shape == (3, 3)
    assert blocks[0, 0] == pytest.approx(values[:3, :2].mean())
    assert blocks[2, 2] == pytest.approx(values[6:, 4:].mean())


def test_many_large_layers_are_shown_smaller():
    assert side_for([(512, 512)]) == 512
    assert side_for([(512, 512)] * 300) < 100
    assert side_for([(4096, 4096)] * 10_000) == 32

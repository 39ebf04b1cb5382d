"""Sensitivity by hand, the protected rows, and when protection is chosen."""

import numpy as np
import pytest

from snacs.errors import InputError
from snacs.limits import choose_share, protected_rows, sensitivity
from snacs.values import Curve, Layer, Segment


def _producer(c_out=2):
    return Layer("a", "Conv2d", c_out, 3, 1)


def _consumer(c_out, c_in, kernel, *feeds, groups=1, name="b"):
    return Layer(name, "Conv2d", c_out, c_in, kernel, groups=groups, feeds=feeds)


WEIGHT = np.array([[[1.0, 3.0], [-2.0, -4.0]], [[0.0, 2.0], [1.0, 1.0]]])  # averages 2 −3; 1 1


def test_by_hand_in_every_mode():
    consumer = _consumer(2, 2, 2, Segment("a", 0, 0, 2))
    readers = [(consumer, WEIGHT)]
    np.testing.assert_allclose(sensitivity(_producer(), readers), [2 / 5 + 1 / 2, 3 / 5 + 1 / 2])
    np.testing.assert_allclose(
        sensitivity(_producer(), readers, "signed"), [2 / -1 + 1 / 2, -3 / -1 + 1 / 2]
    )
    # Rescaled by (w + 4) / 7: averages 6/7, 1/7 and 5/7, 5/7.
    np.testing.assert_allclose(
        sensitivity(_producer(), readers, "minmax"), [6 / 7 + 1 / 2, 1 / 7 + 1 / 2]
    )


def test_absolute_does_not_let_signs_cancel_within_a_kernel():
    consumer = _consumer(1, 2, 2, Segment("a", 0, 0, 2))
    weight = np.array([[[5.0, -5.0], [1.0, 1.0]]])
    np.testing.assert_allclose(sensitivity(_producer(), [(consumer, weight)]), [5 / 6, 1 / 6])


def test_a_signed_sum_of_zero_is_guarded():
    consumer = _consumer(1, 2, 1, Segment("a", 0, 0, 2))
    weight = np.array([[[1.0], [-1.0]]])
    values = sensitivity(_producer(), [(consumer, weight)], "signed")
    np.testing.assert_allclose(values, [1 / 2e-6, -1 / 2e-6])


def test_a_filter_without_weights_adds_nothing():
    consumer = _consumer(1, 2, 1, Segment("a", 0, 0, 2))
    for mode in ("absolute", "signed"):
        values = sensitivity(_producer(), [(consumer, np.zeros((1, 2, 1)))], mode)
        np.testing.assert_array_equal(values, 0)


def test_concat_offset_and_padded_shortcut():
    # Channels: two of layer z, then filter 1 of a (a slice), a padded channel, filter 0 of a.
    feeds = (Segment("z", 0, 0, 2), Segment("a", 1, 2, 1), Segment("a", 0, 4, 1))
    consumer = _consumer(1, 5, 1, *feeds)
    weight = np.array([1.0, 1.0, 2.0, 5.0, 1.0]).reshape(1, 5, 1)
    np.testing.assert_allclose(sensitivity(_producer(), [(consumer, weight)]), [0.1, 0.2])


def test_residual_consumers_are_summed():
    one = _consumer(1, 2, 1, Segment("a", 0, 0, 2), Segment("z", 0, 0, 2), name="b")
    two = _consumer(1, 2, 1, Segment("a", 0, 0, 2), name="c")
    weights = np.array([3.0, 1.0]).reshape(1, 2, 1), np.array([1.0, 1.0]).reshape(1, 2, 1)
    values = sensitivity(_producer(), [(one, weights[0]), (two, weights[1])])
    np.testing.assert_allclose(values, [0.75 + 0.5, 0.25 + 0.5])


def test_grouped_consumer():
    # Four channels in two groups of two; two filters per group.
    consumer = _consumer(4, 2, 1, Segment("a", 0, 0, 4), groups=2)
    weight = np.array([[1, 3], [1, 1], [4, 1], [0, 2]], dtype=float)[:, :, None]
    values = sensitivity(_producer(4), [(consumer, weight)])
    np.testing.assert_allclose(values, [1 / 4 + 1 / 2, 3 / 4 + 1 / 2, 4 / 5, 1 / 5 + 1])


def test_without_consumers_nobody_is_protected():
    values = sensitivity(_producer(), [])
    np.testing.assert_array_equal(values, [0, 0])
    assert not protected_rows(values, 0.5).any()


def test_protected_rows_are_the_most_sensitive_floor_count_ties_by_index():
    values = np.array([0.1, 0.5, 0.3, 0.5, 0.5, -2.0])
    assert np.flatnonzero(protected_rows(values, 0.34)).tolist() == [1, 3]
    assert np.flatnonzero(protected_rows(values, 0.5)).tolist() == [1, 3, 4]
    assert not protected_rows(values, 0.1).any()
    # 0.29 of 100 is 28.999… in floating point and means 29.
    assert protected_rows(np.arange(100.0), 0.29).sum() == 29


def test_bad_arguments():
    consumer = _consumer(2, 2, 2, Segment("a", 0, 0, 2))
    with pytest.raises(InputError, match="'b'"):
        sensitivity(_producer(), [(consumer, WEIGHT[:, :, :1])])
    with pytest.raises(InputError, match="minmax"):
        sensitivity(_producer(), [], "min-max")
    with pytest.raises(InputError, match="share"):
        protected_rows(np.ones(3), 1.0)


def _curve(share, *accuracy):
    return Curve(np.array([0.25, 0.5, 0.75]), np.array(accuracy), 0.95, share)


def test_choose_share():
    plain = _curve(0.0, 0.9, 0.8, 0.5)
    small = _curve(0.1, 0.9, 0.85, 0.6)
    large = _curve(0.3, 0.9, 0.85, np.nan)
    curves = [plain, large, small]
    assert choose_share(curves, 0.25) is plain  # equal is not higher
    assert choose_share(curves, 0.5) is small  # the smaller of equal shares
    assert choose_share(curves, 0.26) is small  # read at the level that covers the limit
    assert choose_share(curves, 0.75) is small  # the larger one cannot get there
    assert choose_share([plain, large], 0.75) is plain
    assert choose_share(curves, 0.0) is plain

"""The seven φ: taken apart for the kernels, and as the paper prints them."""

from __future__ import annotations

import numpy as np
import pytest

from snacs.config import SCALINGS
from snacs.errors import InputError
from snacs.scores.grouping import blocks_of
from snacs.scores.scaling import Cellwise, layer_terms, rescale, scaling_terms, scaling_value
from snacs.values import Layer


def test_rescaling_spans_the_unit_interval():
    assert rescale(np.array([[2.0, 4.0], [3.0, 2.5]])) == pytest.approx(
        np.array([[0, 1], [0.5, 0.25]])
    )


def test_equal_norms_rescale_to_one_and_absent_ones_to_zero():
    assert (rescale(np.full((2, 2), 3.0)) == 1).all()
    assert (rescale(np.zeros((2, 2))) == 0).all()


@pytest.mark.parametrize("scaling", SCALINGS)
def test_terms_multiply_out_to_the_printed_function(scaling):
    norms = np.array([[1.0, 2.0], [4.0, 5.0]])
    terms = scaling_terms(scaling, norms)
    activation = np.array([0.0, 0.5, 2.0])
    for pair, weight in np.ndenumerate(rescale(norms)):
        by_cell = {
            Cellwise.ONE: np.ones(3),
            Cellwise.NORM: activation,
            Cellwise.DECAY: np.exp(-terms.decay[pair] * activation**2),
        }[terms.cellwise]
        printed = scaling_value(scaling, float(weight), activation)
        assert terms.factor[pair] * by_cell == pytest.approx(printed, abs=1e-15)


def test_the_papers_choice_falls_with_the_weight():
    factor = scaling_terms("exp-weights", np.array([1.0, 2.0, 3.0])).factor
    assert factor == pytest.approx([1, np.exp(-0.125), np.exp(-0.5)])


def test_unknown_scaling_is_refused():
    with pytest.raises(InputError, match="'scaling' must be one of"):
        scaling_terms("weight-squares", np.ones((1, 1)))


def test_a_layer_without_scaling_needs_no_norms():
    weight = np.array([[[3.0, 4.0], [0.0, 1.0]]])
    layer = Layer("one", "Linear", 1, 2, 2)
    plain = layer_terms("one", weight, blocks_of(layer, None))
    assert plain.cellwise is Cellwise.ONE
    assert (plain.factor == np.ones((1, 2))).all()
    scaled = layer_terms("weights-squared", weight, blocks_of(layer, None))
    assert scaled.factor == pytest.approx(np.array([[1.0, 0.0]]))

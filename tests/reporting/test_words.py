"""Plain words: why a layer lost what it lost, and whether to trust its scores."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from made_runs import make_plan

from snacs.config import Config
from snacs.reporting.words import bar_of, reasons, trust
from snacs.values import Curve


def _one(**config):
    plan = make_plan()
    plan = replace(plan, config=Config.preset(**{"allocation": "svm", **config}))
    return plan, plan.layers[1]


def test_the_bar_is_the_threshold_in_the_layers_own_terms():
    plan, part = _one()
    assert bar_of(plan, part.curve) == pytest.approx(0.8 * 0.93)
    plan, part = _one(reading="absolute")
    assert bar_of(plan, part.curve) == 0.8
    assert bar_of(replace(plan, threshold=None), part.curve) is None


def test_svm_limits_are_explained_by_the_curve():
    plan, part = _one()
    part = replace(part, limit=0.4, keep=part.keep | True)
    first, second, third = reasons(plan, part)
    accuracy = part.curve.accuracy[39]  # level 40 %
    for word in ("40.0%", f"{accuracy:.1%}", "93.0%", "74.4%"):
        assert word in first
    assert second.startswith("0.0% went")
    assert "Its most sensitive filter is protected" in third


def test_a_layer_below_the_threshold_from_the_start_says_so():
    plan, part = _one()
    curve = Curve(part.curve.levels, np.full(99, 0.31), 0.32)
    words = reasons(plan, replace(part, limit=0.0, curve=curve, keep=part.keep | True))
    assert "Nothing may go" in words[0]
    assert "31.0%" in words[0]


@pytest.mark.parametrize(
    ("config", "word"),
    [
        ({"allocation": "uniform"}, "same share"),
        ({"allocation": "global"}, "One score threshold"),
        ({"allocation": "tempered"}, "between the same share"),
        ({"allocation": "manual"}, "by hand"),
    ],
)
def test_other_allocations_are_named(config, word):
    plan, part = _one(**config)
    assert word in reasons(plan, part)[0]


def test_an_exchange_is_said():
    plan, part = _one(exchange=100)
    assert any("exchanging some on many images" in words for words in reasons(plan, part))
    plan, part = _one()
    assert not any("exchang" in words for words in reasons(plan, part))


def test_dead_filters_are_counted():
    plan, part = _one()
    keep = part.keep.copy()
    keep[:3] = False
    assert f"3 of {part.layer.c_out} filters" in reasons(plan, replace(part, keep=keep))[-1]


@pytest.mark.parametrize(
    ("informative", "level", "word"),
    [(0.95, "good", "95%"), (0.6, "fair", "not of close ones"), (0.2, "poor", "Do not trust")],
)
def test_trust_is_a_level_and_a_sentence(informative, level, word):
    found, sentence = trust({"informative": informative, "singletons": 1 - informative})
    assert found == level
    assert word in sentence


def test_scores_without_cells_have_nothing_to_doubt():
    assert trust({})[0] == "none"

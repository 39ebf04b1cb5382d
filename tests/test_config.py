"""Options: checked when made, with messages that help."""

from __future__ import annotations

import json

import pytest

from snacs.config import PRESETS, Config, Goal
from snacs.errors import InputError


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"score": "acme"}, "must be one of information, acmi.*Did you mean"),
        ({"scor": "l2"}, "no option 'scor'.*'score'"),
        ({"count": 1}, "whole number of at least 2"),
        ({"positions": 2.5}, "whole number"),
        ({"width": 0.0}, "positive number"),
        ({"width": float("nan")}, "must be a number"),
        ({"width": "a"}, "must be a number"),
        ({"cap": "x"}, "must be a number"),
        ({"threshold": float("nan")}, "must be a number"),
        ({"shares": 0.1}, "list of fractions"),
        ({"shares": ("a",)}, "must be a number"),
        ({"protect": 0.1}, "map layer names"),
        ({"conditional": "no"}, "True or False"),
        ({"allocation": "manual", "limits": {"conv": "a"}}, "must be a number"),
        ({"cap": 1.5}, r"\(0, 1\]"),
        ({"shares": (1.0,)}, r"\[0, 1\)"),
        ({"protect": {"a": -0.1}}, r"\[0, 1\)"),
        ({"allocation": "manual", "limits": {"conv": 1.2}}, "layer 'conv'"),
        ({"limits": {"conv": 0.2}}, "allocation='manual'"),
        ({"threshold": 0.1, "threshold_from": "conv"}, "not both"),
        ({"exchange": -1}, "'exchange' must be a whole number of at least 0"),
        ({"exchange": 0.5}, "'exchange' must be a whole number"),
        ({"exchange": 100, "granularity": "filter"}, "single connections"),
        ({"solved_share": 0.0}, r"'solved_share' must lie in \(0, 1\]"),
        ({"solved_share": "half"}, "'solved_share' must be a number"),
    ],
)
def test_bad_options_are_named(options, message):
    with pytest.raises(InputError, match=message):
        Config.preset("default", **options)


def test_how_far_repair_goes_depends_on_an_exchange():
    assert Config.preset("default").way_solved == 1.0
    assert Config.preset("default", exchange=100).way_solved == 0.5
    assert Config.preset("default", exchange=100, solved_share=0.8).way_solved == 0.8


def test_an_unknown_preset_is_named():
    with pytest.raises(InputError, match="'preset' must be one of default, paper"):
        Config.preset("papers")


@pytest.mark.parametrize("preset", PRESETS)
def test_a_config_survives_json(preset):
    config = Config.preset(preset, protect={"a": 0.3}, classes=7)
    assert Config.from_dict(json.loads(json.dumps(config.as_dict()))) == config


@pytest.mark.parametrize(
    ("goal", "message"),
    [
        ({"target": 0.0}, "strictly between 0 and 1"),
        ({"target": 1.0}, "strictly between 0 and 1"),
        ({"target": 70}, "0.7 for 70 %"),
        ({"target": -0.1}, "strictly between"),
        ({"target": float("nan")}, "must be a number"),
        ({"target": "0.5"}, "must be a number"),
        ({"tolerance": "a"}, "must be a number"),
        ({"tolerance": 1.0}, r"\[0, 1\)"),
        ({"target": 0.5, "tolerance": 0.1}, "not both"),
        ({"target": 0.5, "budget": "bytes"}, "'budget' must be one of"),
    ],
)
def test_bad_goals_are_named(goal, message):
    with pytest.raises(InputError, match=message):
        Goal(**goal)


def test_whole_filters_are_shared_out_uniformly_unless_told_otherwise():
    assert Config.preset().allocation == "tempered"
    assert Config.preset(granularity="filter").allocation == "uniform"
    assert Config.preset(granularity="filter", allocation="tempered").allocation == "tempered"
    assert Config.preset("paper", granularity="filter").allocation == "svm"

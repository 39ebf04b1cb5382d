"""Schedules by hand, the paper's tables as printed, bad options refused."""

from __future__ import annotations

import math

import pytest

from snacs.errors import InputError
from snacs.training.recipes import RECIPES, Recipe, recipe


def test_step_schedule():
    plan = Recipe(epochs=10, learning_rate=0.4, schedule="step", milestones=(3, 6), multiplier=0.5)
    positions = [0, 2.99, 3, 5.5, 6, 9.99]
    assert [plan.rate(p) for p in positions] == pytest.approx([0.4, 0.4, 0.2, 0.2, 0.1, 0.1])


def test_cosine_schedule():
    plan = Recipe(epochs=4, learning_rate=1.0, schedule="cosine")
    expected = [1.0, 0.5 * (1 + math.sqrt(0.5)), 0.5, 0.5 * (1 - math.sqrt(0.5)), 0.0]
    assert [plan.rate(p) for p in range(5)] == pytest.approx(expected)


def test_warmup_rises_linearly_and_the_cosine_starts_after_it():
    plan = Recipe(epochs=5, learning_rate=0.2, schedule="cosine", warmup=1.0)
    assert [plan.rate(p) for p in (0.25, 0.5, 1.0, 3.0)] == pytest.approx([0.05, 0.1, 0.2, 0.1])
    flat = Recipe(epochs=5, learning_rate=0.2, schedule="constant", warmup=2.0)
    assert [flat.rate(p) for p in (1.0, 2.0, 4.9)] == pytest.approx([0.1, 0.2, 0.2])


@pytest.mark.parametrize(
    ("name", "row"),
    [  # epochs, batch, rate, milestones, weight decay, multiplier, label smoothing
        ("train-vgg16", (300, 128, 0.1, (90, 180, 260), 0.0005, 0.2, 0.0)),
        ("train-resnet56", (300, 128, 0.01, (150, 225), 0.0002, 0.1, 0.0)),
        ("retrain-vgg16", (300, 128, 0.1, (90, 180, 260), 0.0005, 0.1, 0.35)),
        ("retrain-resnet56", (300, 128, 0.1, (90, 180, 260), 0.0005, 0.2, 0.15)),
        ("retrain-resnet50", (100, 64, 0.1, (30, 60, 90), 0.0001, 0.1, 0.9)),
    ],
)
def test_the_papers_tables(name, row):
    r = RECIPES[name]
    found = (
        r.epochs, r.batch, r.learning_rate, r.milestones, r.weight_decay, r.multiplier,
        r.label_smoothing,
    )  # fmt: skip
    assert found == row
    assert r.schedule == "step"
    assert r.momentum == 0.9
    assert "momentum" in r.note


def test_the_probable_misprint_is_named():
    assert "misprint" in RECIPES["retrain-resnet50"].note


def test_changing_a_named_recipe():
    changed = recipe("short", epochs=3, clip=1.0)
    assert (changed.epochs, changed.clip) == (3, 1.0)
    assert RECIPES["short"].epochs == 10
    with pytest.raises(InputError, match="shrot"):
        recipe("shrot")
    with pytest.raises(InputError, match="lr"):
        recipe("short", lr=0.1)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("epochs", 0), ("epochs", 2.5), ("batch", -1), ("learning_rate", 0.0),
        ("learning_rate", math.nan), ("learning_rate", math.inf), ("momentum", 1.0),
        ("weight_decay", -1e-4), ("label_smoothing", 1.5), ("distillation", -0.1),
        ("temperature", 0.0), ("clip", 0.0), ("warmup", 10.0), ("schedule", "linear"),
        ("milestones", (3, 2)), ("milestones", (3,)),
    ],
)  # fmt: skip
def test_bad_options_are_refused_by_name(option, value):
    with pytest.raises(InputError, match=option):
        Recipe(**{"epochs": 10, "learning_rate": 0.1, "schedule": "cosine", option: value})


def test_nesterov_needs_momentum():
    with pytest.raises(InputError, match="nesterov"):
        Recipe(epochs=1, learning_rate=0.1, momentum=0.0, nesterov=True)

"""A plan on disk: the same plan back, or a clear error."""

from __future__ import annotations

import numpy as np
import pytest

from snacs.config import Config, Goal
from snacs.errors import InputError
from snacs.plans import Plan
from snacs.values import Curve, Layer, LayerPlan, LeftAlone, Norm, Segment, Structure, Sum


@pytest.fixture
def plan() -> Plan:
    rng = np.random.default_rng(0)
    stem = Layer("stem", "Conv2d", 5, 3, 9, positions=64, kept_because="first layer")
    body = Layer("body<script>", "Conv2d", 7, 5, 9, positions=16, feeds=(Segment("stem", 0, 0, 5),))
    keep = rng.random((7, 5)) < 0.3
    keep[2] = False
    return Plan(
        Structure(
            (stem, body),
            (Norm("bn", "BatchNorm2d", 7, (Segment("body<script>", 0, 0, 7),)),),
            (Sum(0, "body<script>", 1, "bn"),),
            (LeftAlone("lstm", "LSTM", "recurrent"),),
            (Segment("body<script>", 0, 0, 7),),
        ),
        (
            LayerPlan(
                body,
                keep,
                rng.random((7, 5)).astype(np.float32),
                0.7,
                np.arange(7) == 4,
                Curve(np.arange(1, 100) / 100, rng.random(99), 0.9, 0.1),
                {"singletons": 0.25},
            ),
        ),
        Goal(target=0.7),
        Config.preset("paper", classes=9),
        0.61,
        None,
        ("labels were missing",),
        {"seed": 1},
    )


def test_a_plan_comes_back_as_it_went(plan, tmp_path):
    plan.save(tmp_path / "plan")
    back = Plan.load(tmp_path / "plan")
    assert back.structure == plan.structure
    assert (back.goal, back.config, back.threshold, back.delta) == (
        plan.goal,
        plan.config,
        plan.threshold,
        plan.delta,
    )
    assert (back.notes, back.facts) == (plan.notes, plan.facts)
    for ours, theirs in zip(back.layers, plan.layers, strict=True):
        np.testing.assert_array_equal(ours.keep, theirs.keep)
        np.testing.assert_array_equal(ours.scores, theirs.scores)
        np.testing.assert_array_equal(ours.protected, theirs.protected)
        np.testing.assert_array_equal(ours.curve.accuracy, theirs.curve.accuracy)
        assert (ours.limit, ours.occupancy) == (theirs.limit, theirs.occupancy)
        assert (ours.curve.base, ours.curve.share) == (0.9, 0.1)


def test_counts_are_those_of_the_masks(plan):
    gone = int((~plan["body<script>"].keep).sum())
    assert plan.pruned == gone * 9 / (5 * 3 * 9 + 7 * 5 * 9)
    assert plan.pruned_macs == gone * 9 * 16 / (5 * 3 * 9 * 64 + 7 * 5 * 9 * 16)
    assert plan["body<script>"].dead[2]
    with pytest.raises(KeyError):
        plan["stem"]


def test_printing_names_every_layer_and_reason(plan):
    text = str(plan)
    for word in ("stem", "first layer", "body<script>", "1 of 7", "recurrent", "labels were"):
        assert word in text


@pytest.mark.parametrize("damage", ["empty", "cut", "bit", "foreign", "version", "json", "shape"])
def test_damaged_and_foreign_plans_are_refused(plan, tmp_path, damage):
    folder = tmp_path / "plan"
    plan.save(folder)
    arrays, facts = folder / "arrays.npz", folder / "plan.json"
    content = arrays.read_bytes()
    if damage == "empty":
        arrays.unlink()
    elif damage == "cut":
        arrays.write_bytes(content[: len(content) // 2])
    elif damage == "bit":
        arrays.write_bytes(content[:99] + bytes([content[99] ^ 1]) + content[100:])
    elif damage == "foreign":
        facts.write_text("{}")
    elif damage == "version":
        facts.write_text(facts.read_text().replace('"version": 1', '"version": 9'))
    elif damage == "json":
        facts.write_text(facts.read_text()[:-20])
    else:
        facts.write_text(facts.read_text().replace('"c_out": 7', '"c_out": 8'))
    with pytest.raises(InputError):
        Plan.load(folder)


def test_saving_never_overwrites_something_else(plan, tmp_path):
    (tmp_path / "mine.txt").write_text("precious")
    with pytest.raises(InputError, match="holds no plan"):
        plan.save(tmp_path)
    assert (tmp_path / "mine.txt").read_text() == "precious"

"""Allocation by hand on three layers, and its promises as properties."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from snacs.config import Config, Goal
from snacs.connections import most_prunable
from snacs.errors import InputError, TargetError
from snacs.limits import allocate
from snacs.limits.ladders import TRUST, read
from snacs.values import Curve, Layer, LeftAlone, Structure

LEVELS = np.arange(1, 100) / 100


def _structure(kept=True):
    """Budgets: first 100 (kept), a 100·1, b 100·2, c 200·1 weights: 600 in all."""
    first = Layer("first", "Conv2d", 10, 10, 1, kept_because="first layer" if kept else None)
    return Structure(
        layers=(
            first,
            Layer("a", "Conv2d", 10, 10, 1, positions=4),
            Layer("b", "Conv2d", 10, 10, 2, positions=2),
            Layer("c", "Linear", 10, 20, 1),
        ),
        left_alone=(LeftAlone("lstm", "LSTM", "recurrent"),),
    )


def _scores(structure, seed=0):
    rng = np.random.default_rng(seed)
    return {
        layer.name: np.round(rng.random((layer.c_out, layer.c_in)), 3)
        for layer in structure.prunable
    }


def _steps(*pairs, base=1.0):
    """A curve that holds each accuracy up to a level in percent."""
    accuracy = np.zeros(99)
    start = 0
    for level, value in pairs:
        accuracy[start:level] = value
        start = level
    return Curve(LEVELS, accuracy, base)


CURVES = {
    "a": _steps((20, 1.0), (50, 0.9), (99, 0.5)),
    "b": _steps((40, 0.9), (60, 0.8), (99, 0.2)),
    "c": _steps((10, 0.95), (99, 0.7), base=0.95),
}
ABSOLUTE = Config(reading="absolute")


def _allocate(goal, config=ABSOLUTE, *, protected=None, curves=CURVES, structure=None):
    structure = structure or _structure()
    return allocate(structure, _scores(structure), curves, protected or {}, goal, config)


def test_threshold_moves_down_until_the_target_is_reached():
    # α = 1: a 20 %; 0.95: c 10 %; 0.9: a 50 %, then b 40 %: 50 + 80 + 20 = 150 weights.
    result = _allocate(Goal(target=150 / 600))
    assert result.counts == {"a": 50, "b": 40, "c": 20}
    assert result.limits == {"a": 0.5, "b": 0.4, "c": 0.1}
    assert result.threshold == 0.9
    assert result.delta is None
    assert result.reached == 0.25
    assert result.removed is None


def test_the_last_layer_to_cross_is_scaled_back():
    # 101 weights: a 50 and c 20 leave 31, which take 16 connections of two weights.
    result = _allocate(Goal(target=101 / 600))
    assert result.counts == {"a": 50, "b": 16, "c": 20}
    assert result.reached == 102 / 600
    assert result.limits["b"] == 0.16
    # Layers that rise at the same accuracy do so in order: b only once a has risen.
    assert _allocate(Goal(target=50 / 600)).counts == {"a": 30, "b": 0, "c": 20}


def test_relative_reading_and_cap():
    # Relative to 0.95, c is at 1 up to 10 % and rises with a at once.
    result = _allocate(Goal(target=40 / 600), Config(reading="relative"))
    assert result.counts == {"a": 20, "b": 0, "c": 20}
    assert result.threshold == 1.0
    # Everything above 0.8 counts as 0.8: a 50, then b 60 % come first.
    capped = _allocate(Goal(target=170 / 600), Config(reading="absolute", cap=0.8))
    assert capped.counts == {"a": 50, "b": 60, "c": 0}
    assert capped.threshold == 0.8
    better = Curve(LEVELS, np.full(99, 0.9), 0.5)
    np.testing.assert_array_equal(read(better, Config(reading="relative")), 1.0)
    lost = Curve(LEVELS, np.full(99, 0.0), 0.0)
    np.testing.assert_array_equal(read(lost, Config(reading="relative")), 1.0)


def test_the_highest_level_above_the_threshold_counts_even_after_a_dip():
    curves = {**CURVES, "a": _steps((20, 0.3), (30, 1.0), (99, 0.1))}
    result = _allocate(Goal(tolerance=0.0), curves=curves)
    assert result.counts["a"] == 30


def test_tolerance():
    # Absolute: accuracy of at least 0.9.
    assert _allocate(Goal(tolerance=0.1)).counts == {"a": 50, "b": 40, "c": 20}
    # Relative: c may fall to 0.9 · 0.95 = 0.855.
    curves = {**CURVES, "c": _steps((10, 0.95), (30, 0.855), (99, 0.7), base=0.95)}
    result = _allocate(Goal(tolerance=0.1), Config(reading="relative"), curves=curves)
    assert result.counts == {"a": 50, "b": 40, "c": 60}
    assert result.threshold == pytest.approx(0.9)
    none = _allocate(Goal(tolerance=0.0), curves={**CURVES, "a": _steps((99, 0.5))})
    assert none.counts == {"a": 0, "b": 0, "c": 0}
    assert (none.reached, none.threshold) == (0.0, 1.0)


def test_macs_budget():
    # Total: first 100, a 400, b 400, c 200 multiply-adds; α = 0.9 gives a 200, c 20, b 160.
    result = _allocate(Goal(target=0.3, budget="macs"))
    assert result.counts == {"a": 50, "b": 28, "c": 20}
    assert result.reached == (200 + 20 + 112) / 1100
    assert 0.3 <= result.reached < 0.3 + 4 / 1100


def test_uniform_and_global():
    uniform = _allocate(Goal(target=0.5), Config(allocation="uniform"))
    assert uniform.counts == {"a": 60, "b": 60, "c": 120}
    assert uniform.threshold is None
    structure = _structure()
    scores = _scores(structure)
    result = _allocate(Goal(target=0.5), Config(allocation="global"))
    for name, count in result.counts.items():
        ordered = np.sort(scores[name].ravel())
        assert ordered[count - 1] <= result.delta
        # Only the last score is shared out by layer; all below it go.
        assert count == len(ordered) or ordered[count] >= result.delta
    assert 0.5 <= result.reached < 0.5 + 2 / 600


def test_tempered_lies_between_uniform_and_global():
    structure = _structure()
    scores = _scores(structure)
    scores["b"] = scores["b"] * 0.3
    for target in (0.1, 0.5, 0.7):
        found = {
            way: allocate(structure, scores, {}, {}, Goal(target=target), Config(allocation=way))
            for way in ("uniform", "global", "tempered")
        }
        for name in scores:
            one, same = (found[way].counts[name] for way in ("global", "uniform"))
            assert abs(found["tempered"].counts[name] - (TRUST * one + (1 - TRUST) * same)) <= 2
        assert found["global"].counts["b"] > found["tempered"].counts["b"]
        assert found["tempered"].counts["b"] > found["uniform"].counts["b"]
        assert target <= found["tempered"].reached < target + 2 / 600
    highest = allocate(structure, scores, {}, {}, Goal(target=0.66), Config(allocation="tempered"))
    assert highest.reached >= 0.66


def test_global_leaves_the_floor_of_a_layer_that_scores_low():
    structure = _structure()
    scores = _scores(structure)
    scores["a"] *= 1e-6
    result = allocate(structure, scores, {}, {}, Goal(target=0.5), Config(allocation="global"))
    assert result.counts["a"] == 99
    assert result.reached >= 0.5


def test_manual():
    config = Config(allocation="manual", limits={"a": 0.29, "c": 1.0})
    result = _allocate(Goal(), config)
    assert result.counts == {"a": 29, "b": 0, "c": 198}
    assert result.reached == 227 / 600
    with pytest.raises(InputError, match="manual"):
        _allocate(Goal(target=0.5), config)


def test_names_in_options_are_checked():
    with pytest.raises(InputError, match=r"'lc'.*Did you mean 'c'"):
        _allocate(Goal(), Config(allocation="manual", limits={"lc": 0.5}))
    with pytest.raises(InputError, match=r"'first'.*first layer"):
        _allocate(Goal(), Config(allocation="manual", limits={"first": 0.5}))
    with pytest.raises(InputError, match=r"'lstm'.*recurrent"):
        _allocate(Goal(), Config(allocation="manual", limits={"lstm": 0.5}))
    with pytest.raises(InputError, match=r"threshold_from.*'zz'"):
        _allocate(Goal(target=0.1), Config(threshold_from="zz"))


def test_score_threshold_holds_back_and_the_target_is_met_with_the_rest():
    structure = _structure()
    scores = _scores(structure)
    config = Config(reading="absolute", threshold=0.3)
    below = {name: int((values <= 0.3).sum()) for name, values in scores.items()}
    alone = _allocate(Goal(), config)
    assert alone.counts == below
    assert alone.delta == 0.3
    assert alone.limits == {"a": 0.99, "b": 0.99, "c": 0.99}
    most = below["a"] + 2 * below["b"] + below["c"]
    met = _allocate(Goal(target=(most - 10) / 600), config)
    assert most - 10 <= round(met.reached * 600) <= most - 9
    assert all(met.counts[name] <= below[name] for name in below)
    with pytest.raises(
        TargetError, match=f"at most {np.floor(most / 600 * 1e4) / 1e4:.4f}.*thresh"
    ):
        _allocate(Goal(target=(most + 1) / 600), config)


def test_score_threshold_from_a_layer():
    structure = _structure()
    scores = _scores(structure)
    limits = {"a": 0.2, "b": 0.9, "c": 0.1}
    result = _allocate(Goal(), Config(allocation="manual", limits=limits, threshold_from="a"))
    delta = np.sort(scores["a"].ravel())[19]
    assert result.delta == delta
    assert result.limits == limits
    assert result.counts["a"] == 20
    assert result.counts["b"] == (scores["b"] <= delta).sum()
    assert result.counts["c"] == min(20, (scores["c"] <= delta).sum())
    # A named layer that is not pruned at all lets nothing go.
    none = _allocate(Goal(), Config(allocation="manual", limits={"b": 0.5}, threshold_from="a"))
    assert sum(none.counts.values()) == 0
    met = _allocate(Goal(target=0.3), Config(reading="absolute", threshold_from="a"))
    assert 180 <= round(met.reached * 600) <= 181
    for name, count in met.counts.items():
        assert count <= (scores[name] <= met.delta).sum()


def test_unreachable_targets_say_how_far_and_why():
    rows = {"a": np.arange(10) < 3}
    curves = {**CURVES, "a": Curve(LEVELS, np.where(LEVELS > 0.7, np.nan, 0.5), 1.0, 0.3)}
    with pytest.raises(TargetError) as error:
        _allocate(Goal(target=0.95), protected=rows, curves=curves)
    text = str(error.value)
    most = np.floor((70 + 198 + 198) / 600 * 1e4) / 1e4
    assert f"at most {most:.4f}" in text
    assert "first" in text
    assert "16.7%" in text
    assert "1 %" in text
    assert "protected" in text
    reached = _allocate(Goal(target=most), protected=rows, curves=curves)
    assert reached.counts == {"a": 70, "b": 99, "c": 198}


def test_contradictions_and_missing_parts():
    with pytest.raises(InputError, match="how far"):
        _allocate(Goal())
    with pytest.raises(InputError, match="svm"):
        _allocate(Goal(tolerance=0.1), Config(allocation="uniform"))
    with pytest.raises(InputError, match="threshold_from"):
        _allocate(Goal(), Config(threshold_from="a"))
    with pytest.raises(InputError, match=r"curve.*'a'"):
        _allocate(Goal(target=0.1), curves={})
    structure = _structure()
    with pytest.raises(InputError, match=r"scores.*'a'"):
        allocate(structure, {}, CURVES, {}, Goal(target=0.1), ABSOLUTE)
    nothing = Structure(layers=structure.layers[:1])
    with pytest.raises(InputError, match=r"nothing to prune.*first layer"):
        allocate(nothing, {}, {}, {}, Goal(target=0.1), ABSOLUTE)


@st.composite
def _problems(draw):
    seed = draw(st.integers(0, 10_000))
    rng = np.random.default_rng(seed)
    layers = tuple(
        Layer(
            f"l{i}",
            "Conv2d",
            int(rng.integers(1, 12)),
            int(rng.integers(1, 12)),
            int(rng.integers(1, 10)),
            positions=int(rng.integers(1, 50)),
            kept_because="kept" if i == 0 else None,
        )
        for i in range(4)
    )
    structure = Structure(layers=layers)
    digits = draw(st.sampled_from([1, 3]))
    scores = {
        layer.name: np.round(rng.random((layer.c_out, layer.c_in)), digits) for layer in layers[1:]
    }
    protected = {layer.name: rng.random(layer.c_out) < 0.2 for layer in layers[1:]}
    curves = {}
    for layer in layers[1:]:
        accuracy = np.round(np.sort(rng.random(99))[::-1], 2) + 0.1 * rng.random(99)
        free = layer.connections - protected[layer.name].sum() * layer.c_in
        accuracy[np.arange(1, 100) * layer.connections // 100 > free] = np.nan
        curves[layer.name] = Curve(LEVELS, np.clip(accuracy, 0, 1), 0.9)
    config = Config(
        allocation=draw(st.sampled_from(["svm", "uniform", "global", "tempered"])),
        reading=draw(st.sampled_from(["absolute", "relative"])),
        threshold_from=draw(st.sampled_from([None, "l2"])),
    )
    budget = draw(st.sampled_from(["parameters", "macs"]))
    targets = sorted(draw(st.lists(st.floats(0.01, 0.9), min_size=2, max_size=5)))
    return structure, scores, curves, protected, config, budget, targets


@settings(max_examples=150, deadline=None)
@given(_problems())
def test_exact_monotone_and_within_floors(problem):
    structure, scores, curves, protected, config, budget, targets = problem
    total = structure.macs if budget == "macs" else structure.weights
    before = dict.fromkeys(scores, 0)
    for target in targets:
        try:
            goal = Goal(target=target, budget=budget)
            result = allocate(structure, scores, curves, protected, goal, config)
        except TargetError:
            break
        units = {
            layer.name: layer.kernel * (layer.positions if budget == "macs" else 1)
            for layer in structure.prunable
        }
        gone = sum(result.counts[name] * units[name] for name in units)
        assert result.reached == gone / total
        # Met within one connection: without the last one the target would be missed.
        assert target * total - 1e-6 <= gone < target * total + max(units.values())
        for layer in structure.prunable:
            count = result.counts[layer.name]
            free = layer.connections - protected[layer.name].sum() * layer.c_in
            assert before[layer.name] <= count <= min(most_prunable(layer.connections), free)
            assert layer.connections - count >= max(1, 0.01 * layer.connections)
            assert count <= result.limits[layer.name] * layer.connections + 1e-6
        before = result.counts

"""Allocation by whole filters."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from snacs.config import Config, Goal
from snacs.connections import most_prunable
from snacs.errors import InputError, TargetError
from snacs.limits import allocate
from snacs.selection import select
from snacs.streams import streams
from snacs.values import NETWORK_INPUT, Curve, Layer, Segment, Structure
from structures import path_exists, random_structure, residual

LEVELS = np.arange(1, 100) / 100


def _scores(structure, seed=0):
    rng = np.random.default_rng(seed)
    return {
        layer.name: np.round(rng.random((layer.c_out, layer.c_in)), 3)
        for layer in structure.prunable
    }


def _config(**options):
    return Config(**{"granularity": "filter", "allocation": "uniform", **options})


def _by_row(structure):
    """Scores that order filters by index."""
    return {
        layer.name: np.repeat(np.arange(1.0, layer.c_out + 1)[:, None], layer.c_in, axis=1)
        for layer in structure.prunable
    }


def test_rows_and_the_columns_that_read_them_go():
    structure = residual()
    config = _config(allocation="manual", limits={"a1": 0.5, "a2": 0.9, "b2": 0.3})
    result = allocate(structure, _by_row(structure), {}, {}, Goal(), config)
    removed = {name: np.flatnonzero(rows).tolist() for name, rows in result.removed.items()}
    # All of a2 is coupled to the stem, which is kept. Of b2 only 0, 1, 6 and 7 are free.
    assert removed == {"a1": [0, 1, 2], "a2": [], "b1": [], "b2": [0, 1]}
    # a1: three rows of 4; a2: three columns of 4; b2: two rows of 5; head is kept.
    assert result.counts == {"a1": 12, "a2": 12, "b1": 0, "b2": 10}
    assert result.limits == {"a1": 0.5, "a2": 0.0, "b1": 0.0, "b2": 0.25}
    assert result.reached == 9 * 34 / structure.weights


def test_the_masks_hold_what_was_counted():
    structure = residual()
    scores = _by_row(structure)
    result = allocate(structure, scores, {}, {}, Goal(target=0.3), _config())
    keep = select(structure, scores, result.counts, {}, removed=result.removed)
    assert {name: int((~mask).sum()) for name, mask in keep.items()} == result.counts
    dead = result.removed["a1"]
    assert dead.any()
    assert not keep["a1"][dead].any()
    assert not keep["a2"][:, dead].any()


def test_target_is_exceeded_by_less_than_one_stream():
    structure = residual()
    scores = _scores(structure)
    steps = set()
    for target in np.linspace(0.02, 0.4, 30):
        result = allocate(structure, scores, {}, {}, Goal(target=float(target)), _config())
        steps.add(round(result.reached * structure.weights))
        assert result.reached >= target - 1e-9
    reached = sorted(steps)
    # The largest stream: one filter of b1 with its column in b2, 9 · (4 + 8) weights.
    assert max(np.diff(reached)) <= 9 * 12
    for target, want in ((reached[0] + 1, reached[1]), (reached[1], reached[1])):
        result = allocate(
            structure, scores, {}, {}, Goal(target=target / structure.weights), _config()
        )
        assert round(result.reached * structure.weights) == want


def test_protected_filters_keep_their_stream():
    structure = residual()
    protected = {"b2": np.arange(8) == 0, "a1": np.arange(6) == 0}
    config = _config(allocation="manual", limits={"a1": 0.4, "b2": 0.3})
    result = allocate(structure, _by_row(structure), {}, protected, Goal(), config)
    assert np.flatnonzero(result.removed["b2"]).tolist() == [1, 6]
    assert np.flatnonzero(result.removed["a1"]).tolist() == [1, 2]


def test_svm_curves_decide_which_layer_gives():
    structure = residual()
    flat, steep = np.full(99, 0.9), np.linspace(0.8, 0.1, 99)
    curves = {name: Curve(LEVELS, steep, 0.9) for name in ("a1", "a2", "b1", "b2")}
    curves["b1"] = Curve(LEVELS, flat, 0.9)
    config = _config(allocation="svm", reading="absolute")
    result = allocate(structure, _scores(structure), curves, {}, Goal(target=0.2), config)
    assert result.removed["b1"].sum() == 3
    assert not result.removed["a1"].any()
    assert result.threshold == 0.9
    none = allocate(structure, _scores(structure), curves, {}, Goal(tolerance=0.05), config)
    assert none.reached == 0
    some = allocate(structure, _scores(structure), curves, {}, Goal(tolerance=0.1), config)
    assert some.removed["b1"].sum() == 4


def test_global_and_score_threshold():
    structure = residual()
    scores = _by_row(structure)
    result = allocate(structure, scores, {}, {}, Goal(target=0.05), _config(allocation="global"))
    # The lowest streams all score 1: a1, b1 and b2 filter 0, in this order.
    assert [int(rows.sum()) for rows in result.removed.values()] == [1, 0, 0, 0]
    assert result.delta == 1.0
    below = allocate(structure, scores, {}, {}, Goal(), _config(threshold=2.0))
    assert [np.flatnonzero(rows).tolist() for rows in below.removed.values()] == [
        [0, 1],
        [],
        [0, 1],
        [0, 1],
    ]
    named = allocate(
        structure,
        scores,
        {},
        {},
        Goal(),
        _config(allocation="manual", limits={"a1": 0.2, "b1": 0.9}, threshold_from="a1"),
    )
    assert [int(rows.sum()) for rows in named.removed.values()] == [1, 0, 1, 0]
    assert named.delta == 1.0


def test_unreachable():
    structure = residual()
    scores = _scores(structure)
    with pytest.raises(TargetError, match=r"at most 0\.\d+.*stem.*coupled.*streams"):
        allocate(structure, scores, {}, {}, Goal(target=0.95), _config())
    with pytest.raises(InputError, match="'a1'"):
        allocate(structure, {**scores, "a1": np.zeros(3)}, {}, {}, Goal(target=0.1), _config())


@settings(max_examples=80, deadline=None)
@given(
    st.integers(0, 100_000),
    st.sampled_from(["uniform", "global", "svm"]),
    st.sampled_from(["parameters", "macs"]),
)
def test_nested_counted_and_alive(seed, allocation, budget):
    rng = np.random.default_rng(seed)
    structure = random_structure(rng)
    # Filters of a kept grouped layer count as live even where their own group reads nothing.
    assume(structure.prunable and all(x.prunable or x.groups == 1 for x in structure))
    scores = _scores(structure, seed)
    protected = {layer.name: rng.random(layer.c_out) < 0.1 for layer in structure.prunable}
    curves = {
        layer.name: Curve(LEVELS, np.sort(rng.random(99))[::-1], 1.0)
        for layer in structure.prunable
    }
    total = structure.macs if budget == "macs" else structure.weights
    before = {layer.name: np.zeros(layer.c_out, dtype=bool) for layer in structure.prunable}
    for target in (0.05, 0.2, 0.5):
        try:
            result = allocate(
                structure,
                scores,
                curves,
                protected,
                Goal(target=target, budget=budget),
                _config(allocation=allocation),
            )
        except TargetError:
            break
        keep = select(structure, scores, result.counts, protected, removed=result.removed)
        gone = 0
        for layer in structure.prunable:
            masked = int((~keep[layer.name]).sum())
            assert masked == result.counts[layer.name] <= most_prunable(layer.connections)
            gone += masked * layer.kernel * (layer.positions if budget == "macs" else 1)
            rows = result.removed[layer.name]
            assert not (rows & protected[layer.name]).any()
            assert not (before[layer.name] & ~rows).any()
            # Whoever was not removed still reads something.
            assert keep[layer.name][~rows].any(axis=1).all()
            before[layer.name] = rows
        assert result.reached == gone / total
        assert result.reached >= target - 1e-9
        for stream in streams(structure):
            fates = {
                bool(result.removed[name][i]) if name in result.removed else False
                for name, i in stream.members
            }
            assert len(fates) == 1
        everything = {x.name: np.ones((x.c_out, x.c_in), bool) for x in structure.prunable}
        assert path_exists(structure, keep) or not path_exists(structure, everything)


def test_wide_layers_keep_whole_vectors():
    """64 filters and more: what stays is a multiple, whatever the target asks for."""
    layers = (
        Layer("stem", "Conv2d", 100, 3, 9, positions=4, consumers=("body",), kept_because="first",
              feeds=(Segment(NETWORK_INPUT, 0, 0, 3),)),
        Layer("body", "Conv2d", 100, 100, 9, positions=4, consumers=("next",),
              feeds=(Segment("stem", 0, 0, 100),)),
        Layer("next", "Conv2d", 128, 100, 9, positions=4, consumers=("end",),
              feeds=(Segment("body", 0, 0, 100),)),
        Layer("end", "Linear", 10, 128, 1, kept_because="classifier",
              feeds=(Segment("next", 0, 0, 128),)),
    )  # fmt: skip
    structure = Structure(layers, outputs=(Segment("end", 0, 0, 10),))
    rng = np.random.default_rng(0)
    scores = {layer.name: rng.random((layer.c_out, layer.c_in)) for layer in structure.prunable}
    for target in (0.2, 0.37, 0.6):
        goal = Goal(target=target)
        config = _config()
        found = allocate(structure, scores, {}, {}, goal=goal, config=config)
        assert found.reached >= target
        assert found.removed is not None
        # An eighth of 100 is 12, of 128 it is 16.
        assert int((~found.removed["body"]).sum()) % 12 == 0
        assert int((~found.removed["next"]).sum()) % 16 == 0
        single = _config(multiple=1)
        exact = allocate(structure, scores, {}, {}, goal=goal, config=single)
        assert exact.reached <= found.reached

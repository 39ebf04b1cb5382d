"""Masks: exact, nested, floors, protection, and a live path."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from snacs.connections import most_prunable
from snacs.errors import InputError
from snacs.selection import select
from snacs.values import NETWORK_INPUT, Layer, Segment, Structure
from structures import path_exists, random_structure, residual


def _single(c_out=2, c_in=3):
    layer = Layer(
        "a", "Conv2d", c_out, c_in, 1, feeds=(Segment(NETWORK_INPUT, 0, 0, c_in),)
    )  # fmt: skip
    return Structure(layers=(layer,), outputs=(Segment("a", 0, 0, c_out),))


SCORES = np.array([[0.3, 0.1, 0.2], [0.2, 0.2, 0.9]])


def _select(count, ties="index", protected=None):
    rows = {} if protected is None else {"a": np.array(protected)}
    return select(_single(), {"a": SCORES}, {"a": count}, rows, ties=ties)["a"].astype(int).tolist()


def test_lowest_scores_go_ties_by_index():
    assert _select(0) == [[1, 1, 1], [1, 1, 1]]
    assert _select(2) == [[1, 0, 0], [1, 1, 1]]
    assert _select(3) == [[1, 0, 0], [0, 1, 1]]
    assert _select(5) == [[0, 0, 0], [0, 0, 1]]


def test_ties_by_value_go_together_and_never_exceed_the_count():
    assert _select(1, "value") == [[1, 0, 1], [1, 1, 1]]
    assert _select(2, "value") == _select(3, "value") == _select(1)
    assert _select(4, "value") == [[1, 0, 0], [0, 0, 1]]
    assert _select(5, "value") == [[0, 0, 0], [0, 0, 1]]


def test_protected_rows_are_untouched():
    assert _select(2, protected=[True, False]) == [[1, 1, 1], [0, 0, 1]]
    assert _select(3, protected=[True, False]) == [[1, 1, 1], [0, 0, 0]]
    with pytest.raises(InputError, match=r"'a'.*between 0 and 3"):
        _select(4, protected=[True, False])


def test_bad_arguments():
    with pytest.raises(InputError, match="between 0 and 5"):
        _select(6)
    with pytest.raises(InputError, match="ties"):
        _select(1, "random")
    with pytest.raises(InputError, match="'a'"):
        select(_single(), {"a": SCORES.T}, {}, {})
    with pytest.raises(InputError, match=r"'a'.*NaN"):
        select(_single(), {"a": SCORES * np.nan}, {}, {})


def _chain(*, first=0, length=2):
    """a (2 filters) → b (2 channels: the filters of a from ``first`` on)."""
    return Structure(
        layers=(
            Layer("a", "Conv2d", 2, 2, 1, feeds=(Segment(NETWORK_INPUT, 0, 0, 2),)),
            Layer("b", "Conv2d", 2, length, 1, feeds=(Segment("a", first, 0, length),)),
        ),
        outputs=(Segment("b", 0, 0, 2),),
    )


def test_a_layer_that_would_read_only_dead_channels_swaps_one_connection():
    # a keeps only filter 0; b's best three lie on channel 1 (twice) and channel 0 scores low.
    scores = {"a": np.array([[0.9, 0.8], [0.1, 0.2]]), "b": np.array([[0.1, 0.7], [0.3, 0.8]])}
    keep = select(_chain(), scores, {"a": 2, "b": 2}, {})
    assert keep["a"].astype(int).tolist() == [[1, 1], [0, 0]]
    # Without the swap b would keep (0, 1) and (1, 1). The best on channel 0 is (1, 0); the
    # lowest kept one, (0, 1), goes for it.
    assert keep["b"].astype(int).tolist() == [[0, 0], [1, 1]]


def test_a_reader_of_a_slice_revives_a_filter_upstream():
    # b reads only filter 1 of a, which the scores would kill.
    scores = {"a": np.array([[0.9, 0.8], [0.1, 0.2]]), "b": np.array([[0.1], [0.3]])}
    keep = select(_chain(first=1, length=1), scores, {"a": 2, "b": 1}, {})
    assert keep["a"].astype(int).tolist() == [[1, 0], [0, 1]]
    assert keep["b"].astype(int).tolist() == [[0], [1]]


def test_if_all_others_are_protected_one_more_connection_stays():
    scores = {"a": np.array([[0.9, 0.8], [0.1, 0.2]]), "b": np.array([[0.1], [0.3]])}
    protected = {"a": np.array([True, False])}
    keep = select(_chain(first=1, length=1), scores, {"a": 2, "b": 0}, protected)
    assert keep["a"].astype(int).tolist() == [[1, 1], [0, 1]]


def test_filters_go_as_rows_and_columns():
    structure = residual()
    removed = {"a1": np.arange(6) < 2, "b2": np.isin(np.arange(8), [0, 3])}
    keep = select(structure, {}, {}, {}, removed=removed)
    assert set(keep) == {"a1", "a2", "b1", "b2"}
    assert (~keep["a1"]).sum() == 8
    assert not keep["a2"][:, :2].any()
    assert keep["a2"][:, 2:].all()
    assert keep["b1"].all()
    assert not keep["b2"][[0, 3]].any()


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 100_000), st.sampled_from([0, 1, 3]), st.sampled_from(["index", "value"]))
def test_counts_floors_protection_and_path(seed, digits, ties):
    rng = np.random.default_rng(seed)
    structure = random_structure(rng)
    layers = structure.prunable
    scores = {x.name: np.round(rng.random((x.c_out, x.c_in)), digits) for x in layers}
    protected = {x.name: rng.random(x.c_out) < 0.15 for x in layers}
    most = {
        x.name: min(most_prunable(x.connections), int((~protected[x.name]).sum()) * x.c_in)
        for x in layers
    }
    hard = rng.random() < 0.5
    counts = {
        x.name: most[x.name] if hard else int(rng.integers(0, most[x.name] + 1)) for x in layers
    }
    keep = select(structure, scores, counts, protected, ties=ties)
    assert set(keep) == {x.name for x in layers}
    for layer in layers:
        mask = keep[layer.name]
        assert mask.shape == (layer.c_out, layer.c_in)
        assert mask[protected[layer.name]].all()
        assert mask.any()
        assert (~mask).sum() <= counts[layer.name]
        if ties == "index" and not protected[layer.name].any() and mask.sum() > len(layers):
            assert (~mask).sum() == counts[layer.name]
    everything = {x.name: np.ones((x.c_out, x.c_in), bool) for x in layers}
    assert path_exists(structure, keep) or not path_exists(structure, everything)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 100_000), st.sampled_from(["index", "value"]))
def test_masks_are_nested(seed, ties):
    rng = np.random.default_rng(seed)
    structure = _single(6, 7)
    scores = {"a": np.round(rng.random((6, 7)), 1)}
    rows = {"a": rng.random(6) < 0.2}
    most = min(41, int((~rows["a"]).sum()) * 7)
    before = np.ones((6, 7), dtype=bool)
    for count in sorted(rng.integers(0, most + 1, size=5)):
        keep = select(structure, scores, {"a": int(count)}, rows, ties=ties)["a"]
        assert not (keep & ~before).any()
        if ties == "index":
            assert (~keep).sum() == count
        else:
            # What stays scores above all that goes: equal scores share their fate.
            gone, free = scores["a"][~keep], keep & ~rows["a"][:, None]
            assert not gone.size or not free.any() or gone.max() < scores["a"][free].min()
        before = keep

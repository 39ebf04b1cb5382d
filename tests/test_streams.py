"""Which filters are coupled, and what they score together."""

import numpy as np
import pytest

from snacs.streams import filter_scores, live_channels, streams
from snacs.values import MIXED, Layer, Segment, Structure
from structures import random_structure, residual


def test_residual_sums_couple_filters_through_a_padded_shortcut():
    found = streams(residual())
    by_member = {member: stream for stream in found for member in stream.members}
    assert len(by_member) == sum(len(stream.members) for stream in found) == 4 + 6 + 4 + 5 + 8 + 10
    inner = by_member["a1", 3]
    assert inner.members == (("a1", 3),)
    assert inner.readers == (("a2", 3),)
    assert inner.kept_because is None
    joint = by_member["a2", 1]
    assert joint.members == (("stem", 1), ("a2", 1), ("b2", 3))
    assert joint.readers == (("a1", 1), ("b1", 1), ("head", 3))
    assert "first layer" in joint.kept_because
    free = by_member["b2", 7]
    assert free.members == (("b2", 7),)
    assert free.readers == (("head", 7),)
    assert free.kept_because is None
    assert "classifier" in by_member["head", 0].kept_because


def test_outputs_mixtures_and_unknown_sources_keep_a_stream():
    structure = Structure(
        layers=(
            Layer("a", "Conv2d", 3, 1, 1),
            Layer(
                "b", "Conv2d", 2, 3, 1,
                feeds=(Segment("a", 0, 0, 3), Segment(MIXED, 0, 0, 1), Segment("norm", 0, 1, 1)),
            ),
        ),
        outputs=(Segment("b", 1, 0, 1),),
    )  # fmt: skip
    reasons = {stream.members[0]: stream.kept_because for stream in streams(structure)}
    assert "beyond tracing" in reasons["a", 0]
    assert "'norm'" in reasons["a", 1]
    assert reasons["a", 2] is None
    assert reasons["b", 0] is None
    assert "output" in reasons["b", 1]


@pytest.mark.parametrize("seed", range(20))
def test_streams_are_a_partition_and_every_channel_has_one(seed):
    structure = random_structure(np.random.default_rng(seed))
    found = streams(structure)
    members = [member for stream in found for member in stream.members]
    assert sorted(members) == sorted((x.name, i) for x in structure for i in range(x.c_out))
    owner = {member: place for place, stream in enumerate(found) for member in stream.members}
    for layer in structure:
        meets = {}
        for s in layer.feeds:
            for step in range(s.length):
                if s.source in {x.name for x in structure}:
                    place = owner[s.source, s.first + step]
                    meets.setdefault(s.start + step, set()).add(place)
                    assert (layer.name, s.start + step) in found[place].readers
        assert all(len(places) == 1 for places in meets.values())


def test_filter_scores_are_means_over_connections_then_members():
    structure = residual()
    scores = {
        layer.name: np.arange(layer.connections, dtype=float).reshape(layer.c_out, layer.c_in)
        for layer in structure.prunable
    }
    shared = filter_scores(structure, scores)
    assert shared["a1"].shape == (6, 4)
    np.testing.assert_array_equal(shared["a1"], np.repeat([[1.5 + 4 * i] for i in range(6)], 4, 1))
    # a2 filter 1 (6 … 11, mean 8.5) meets b2 filter 3 (15 … 19, mean 17); stem has no score.
    np.testing.assert_array_equal(shared["a2"][1], (8.5 + 17) / 2)
    np.testing.assert_array_equal(shared["b2"][3], (8.5 + 17) / 2)
    again = filter_scores(structure, shared)
    assert all((again[name] == shared[name]).all() for name in shared)


def test_live_channels():
    structure = residual()
    live = {"a2": np.array([True, False, False, False]), "stem": np.zeros(4, dtype=bool)}
    assert live_channels(structure["b1"], live).tolist() == [True, False, False, False]
    # head: b2 is not known to be dead, so all its channels count as live.
    assert live_channels(structure["head"], live).all()
    live["b2"] = np.zeros(8, dtype=bool)
    assert np.flatnonzero(live_channels(structure["head"], live)).tolist() == [2]
    assert live_channels(Layer("x", "Linear", 2, 3, 1), live).all()

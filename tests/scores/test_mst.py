"""MINT's estimator: the compiled tree against scipy's, and what the statistic means."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from layer_evidence import make_evidence

from snacs.config import Config
from snacs.errors import InputError
from snacs.scores import mst
from snacs.scores.mst import (
    Halves,
    crossing_edges,
    geometric,
    geometric_reference,
    resample_reference,
    score_mint,
    squared_distances,
    tree,
    tree_reference,
)


def test_hand_drawn_tree():
    points = np.array([[0.0, 0], [1, 0], [3, 0], [3, 4]])
    for grow in (tree, tree_reference):
        edges, length = grow(points)
        assert {frozenset(edge) for edge in edges.tolist()} == {
            frozenset(edge) for edge in [(0, 1), (1, 2), (2, 3)]
        }
        assert length == pytest.approx(1 + 2 + 4)
        assert crossing_edges(edges, np.array([0, 0, 1, 0])) == 2


@given(st.integers(2, 40), st.integers(1, 5), st.integers(0, 10**6))
@settings(deadline=None, max_examples=40)
def test_compiled_tree_has_scipys_length_and_cross_count(samples, dims, seed):
    rng = np.random.default_rng(seed)
    points, label = rng.normal(size=(samples, dims)), rng.integers(0, 2, samples)
    fast, fast_length = tree(points)
    slow, slow_length = tree_reference(points)
    assert len(fast) == len(slow) == samples - 1
    assert fast_length == pytest.approx(slow_length, rel=1e-6)  # distances in float32 for Prim
    assert crossing_edges(fast, label) == crossing_edges(slow, label)


def test_points_that_coincide_are_joined_by_edges_of_length_zero():
    points = np.repeat(np.array([[0.0, 0.0], [5.0, 0.0]]), 3, axis=0)
    for grow in (tree, tree_reference):
        edges, length = grow(points)
        assert len(edges) == 5
        assert length == pytest.approx(5)


def test_distances_by_matrix_product():
    points = np.random.default_rng(0).normal(size=(20, 4)) + 100
    expected = ((points[:, None] - points[None]) ** 2).sum(axis=2)
    assert squared_distances(points) == pytest.approx(expected, abs=1e-10)


def test_resampling_takes_the_nearest_other_neighbour_of_the_same_half():
    halves = Halves(np.array([0, 1]), np.array([2, 3, 4]), np.array([3, 4, 2]))
    y = np.arange(5.0)[:, None]
    z = np.array([[0.0], [0.1], [0.05], [1.0], [0.2]])
    assert resample_reference(y, z, halves)[:, 0].tolist() == [0, 1, 4, 4, 2]
    assert resample_reference(y, z[:, :0], halves)[:, 0].tolist() == [0, 1, 3, 4, 2]


def test_statistic_by_hand():
    halves = Halves(np.arange(4), np.arange(4, 8), np.arange(4, 8))
    assert halves.statistic(1) == pytest.approx(1 - 8 / 32)
    assert halves.statistic(7) == 0  # never below


@given(st.integers(4, 30), st.integers(0, 3), st.integers(0, 10**6))
@settings(deadline=None, max_examples=30)
def test_one_pair_equals_the_reference(samples, dims_z, seed):
    rng = np.random.default_rng(seed)
    x, y, z = (rng.normal(size=(samples, dims)) for dims in (2, 1, dims_z))
    halves = Halves.draw(rng, samples)
    assert geometric(x, y, z, halves) == geometric_reference(x, y, z, halves)


def test_dependence_is_told_from_conditional_independence():
    rng = np.random.default_rng(1)
    samples = 400
    halves = Halves.draw(rng, samples)
    z, noise = rng.normal(size=(samples, 1)), rng.normal(size=(2, samples, 1)) * 0.3
    y = z + noise[0]
    free, bound = geometric(z + noise[1], y, z, halves), geometric(y**2 + y, y, z, halves)
    # Independent given Z: the statistic's standard deviation is about 1/√N = 0.05.
    assert free < 0.15
    assert bound > free + 0.2


@given(st.integers(0, 10**6), st.sampled_from([None, 2]), st.booleans(), st.sampled_from([1, 2]))
@settings(deadline=None, max_examples=25)
def test_layer_scores_equal_the_reference_pair_by_pair(seed, groups, conditional, conv_groups):
    evidence = make_evidence(c_out=4, c_in=3, kernel=1, groups=conv_groups, samples=24, seed=seed)
    # Continuous inputs: where distances tie there is more than one minimum spanning tree.
    rng = np.random.default_rng(seed)
    inputs, outputs = rng.normal(size=evidence.inputs.shape), rng.normal(size=(24, 4))
    evidence = make_evidence(
        c_out=4,
        c_in=3,
        kernel=1,
        groups=conv_groups,
        samples=24,
        inputs=inputs,
        outputs=outputs,
    )
    config = Config(score="mint", groups=groups, conditional=conditional)
    scores, _ = score_mint(evidence, config, np.random.default_rng(seed), 1)
    halves = Halves.draw(np.random.default_rng(seed), 24)
    for block in mst.blocks_of(evidence.layer, groups):
        channels = np.arange(block.first_channel, block.first_channel + 3)
        for rows in block.rows:
            for columns in block.columns:
                read = block.channels(columns)
                rest = np.setdiff1d(channels, np.r_[read]) if conditional else channels[:0]
                expected = geometric_reference(
                    evidence.outputs[:, rows],
                    evidence.inputs[:, read],
                    evidence.inputs[:, rest],
                    halves,
                )
                assert scores[rows, columns] == pytest.approx(expected, abs=1e-12)


def test_threads_do_not_change_a_bit_and_many_samples_are_thinned(monkeypatch):
    monkeypatch.setattr(mst, "SAMPLE_LIMIT", 30)
    evidence = make_evidence(samples=70)
    one, two = (
        score_mint(evidence, Config(score="mint"), np.random.default_rng(0), threads)[0]
        for threads in (1, 2)
    )
    assert np.array_equal(one, two)
    # With 15 + 15 points the statistic moves in steps of 30 / (2 · 225) = 1/15.
    assert one * 15 == pytest.approx(np.round(one * 15))


def test_too_few_samples_are_refused_by_name():
    with pytest.raises(InputError, match=r"'body\.conv'.*at least 4 samples"):
        score_mint(make_evidence(samples=3), Config(score="mint"), np.random.default_rng(0), 1)

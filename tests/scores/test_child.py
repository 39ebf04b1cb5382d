"""The child view: compiled, against the reference run pair by pair."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from layer_evidence import make_evidence

from snacs.config import SCALINGS, Config
from snacs.scores import kernels_child
from snacs.scores.acmi import cell_norms, estimate
from snacs.scores.child import score_child
from snacs.scores.grouping import blocks_of, group_norms
from snacs.scores.hashing import VectorHash, bin_codes, direction_count, draw_shifts, mean_deviation
from snacs.scores.scaling import rescale, scaling_value
from snacs.values import Evidence

AGREES = 1e-6
"""Codes are identical by construction; the rest is double precision (squared means in float32)."""


def contribution(evidence: Evidence, row: int, column: int) -> np.ndarray:
    """Y of one connection, in single precision and in the order of the kernel's taps."""
    channel = evidence.layer.channel_of()[row, column]
    total = evidence.weight[row, column, 0] * evidence.windows[:, channel, 0]
    for tap in range(1, evidence.layer.kernel):
        total = total + evidence.weight[row, column, tap] * evidence.windows[:, channel, tap]
    return total


def reference(evidence: Evidence, config: Config, seed: int) -> np.ndarray:
    """Child scores of all connections, straight from the definitions."""
    rng = np.random.default_rng(seed)
    layer, unit = evidence.layer, mean_deviation(evidence.outputs)
    if unit == 0:
        return np.zeros((layer.c_out, layer.c_in))
    wide = np.float32(1 / (unit * config.width))
    narrow = np.float32(1 / (unit * config.contribution_width))
    shifts = draw_shifts(rng, config.shifts)
    blocks = blocks_of(layer, config.groups)
    weights = rescale(group_norms(evidence.weight, blocks))
    samples = len(evidence.outputs)
    hashing = VectorHash.draw(
        rng,
        kind=config.hash,
        dims=max(rows.stop - rows.start for block in blocks for rows in block.rows),
        samples=samples,
        directions=direction_count(samples, config.directions),
    )
    single = all(block.single for block in blocks)
    scores = np.zeros((layer.c_out, layer.c_in))
    for rows, columns in [(r, c) for b in blocks for r in b.rows for c in b.columns]:
        x = evidence.outputs[:, rows].T
        y = np.zeros_like(x)
        for place, row in enumerate(range(rows.start, rows.stop)):
            for column in range(columns.start, columns.stop):
                y[place] += contribution(evidence, row, column)
        z = x - y if config.conditional else np.zeros_like(x)
        for shift in shifts:
            if single:
                codes = [
                    bin_codes(value[0], inverse, b)
                    for value, inverse, b in zip(
                        (x, y, z), (wide, narrow, wide), shift, strict=True
                    )
                ]
            else:
                codes = [
                    hashing(value, inverse, b)[0]
                    for value, inverse, b in zip(
                        (x, y, z), (wide, narrow, wide), shift, strict=True
                    )
                ]
            norms = cell_norms(tuple(codes), (x.T, y.T, z.T))
            phi = scaling_value(config.scaling, float(weights[rows.start, columns.start]), norms)
            scores[rows, columns] += estimate(*codes, support=config.support, scaling=phi)
    return scores / config.shifts


def scored(evidence: Evidence, config: Config, seed: int, threads: int = 1) -> np.ndarray:
    return score_child(evidence, config, np.random.default_rng(seed), threads)[0]


@given(
    st.builds(
        make_evidence,
        c_out=st.sampled_from([2, 4]),
        c_in=st.integers(1, 3),
        kernel=st.integers(1, 3),
        groups=st.sampled_from([1, 2]),
        samples=st.integers(2, 40),
        seed=st.integers(0, 10**6),
    ),
    st.builds(
        Config,
        support=st.sampled_from(["full", "edges"]),
        conditional=st.booleans(),
        width=st.sampled_from([0.2, 0.5, 2.0]),
        contribution_width=st.sampled_from([0.05, 0.1, 1.0]),
        shifts=st.integers(1, 2),
        scaling=st.sampled_from(SCALINGS),
        groups=st.sampled_from([None, None, 1, 2]),
        hash=st.sampled_from(["projection", "floor"]),
        directions=st.sampled_from([None, 1, 4]),
    ),
    st.integers(0, 100),
)
@settings(deadline=None, max_examples=60)
def test_kernel_equals_reference(evidence, config, seed):
    expected = reference(evidence, config, seed)
    assert scored(evidence, config, seed) == pytest.approx(expected, abs=AGREES)


@pytest.mark.parametrize("scaling", SCALINGS)
@pytest.mark.parametrize("support", ["full", "edges"])
def test_every_scaling_equals_reference(scaling, support):
    evidence = make_evidence(samples=80, seed=5)
    config = Config(scaling=scaling, support=support, shifts=1)
    assert scored(evidence, config, 3) == pytest.approx(reference(evidence, config, 3), abs=AGREES)


@pytest.mark.parametrize("scaling", ["one", "activations"])
def test_tables_too_large_for_memory_are_sorted_instead(scaling):
    evidence = make_evidence(samples=70, seed=8)
    config = Config(contribution_width=1e-6, scaling=scaling)  # millions of bins of Y
    assert scored(evidence, config, 1) == pytest.approx(reference(evidence, config, 1), abs=AGREES)


def test_threads_do_not_change_a_bit():
    evidence = make_evidence(c_out=6, c_in=5, samples=90)
    for config in (Config(), Config(groups=2), Config(scaling="weights-activations")):
        one, two = scored(evidence, config, 0, 1), scored(evidence, config, 0, 2)
        assert np.array_equal(one, two)


def test_constant_contributions_and_outputs_score_zero():
    evidence = make_evidence(c_out=3, c_in=3, samples=50)
    weight = evidence.weight.copy()
    weight[1, 2] = 0  # contributes nothing
    weight[2] = 0  # a filter that is only its bias
    windows = evidence.windows.copy()
    windows[:, 0] = 1.5  # a channel that never changes
    quiet = make_evidence(c_out=3, c_in=3, samples=50, weight=weight, windows=windows)
    scores = scored(quiet, Config(), 0)
    assert scores[1, 2] == 0
    assert (scores[2] == 0).all()
    assert scores[:, 0] == pytest.approx(np.zeros(3), abs=0)
    assert scores[0, 1] > 0


def test_a_layer_that_never_changes_scores_zero_everywhere():
    evidence = make_evidence(weight=np.zeros((4, 3, 2)))
    values, occupancy = score_child(evidence, Config(), np.random.default_rng(0), 1)
    assert (values == 0).all()
    assert occupancy == {}


def test_a_louder_kernel_scores_higher():
    rng = np.random.default_rng(0)
    windows = rng.normal(size=(800, 3, 1))
    evidence = make_evidence(
        c_out=1, c_in=3, kernel=1, samples=800, windows=windows, weight=[[[0.05], [0.3], [1.0]]]
    )
    quiet, middle, loud = scored(evidence, Config(), 0)[0]
    assert quiet < middle < loud


def test_occupancy_counts_cells_of_a_known_table():
    # One channel with weight 1 and no other: Y = X, Z = 0. The unit is 1 (values ±1), so X falls
    # into two bins at a width of 0.5, and Z into one cell in which y varies.
    windows = np.tile([1.0, -1.0], 10)[:, None, None]
    evidence = make_evidence(
        c_out=1, c_in=1, kernel=1, samples=20, windows=windows, weight=[[[1.0]]], bias=[0.0]
    )
    _, occupancy = score_child(evidence, Config(), np.random.default_rng(0), 1)
    assert occupancy == {
        "cells_z": 1,
        "mean_cell": 20,
        "singletons": 0,
        "informative": 1,
        "bins_x": 2,
        "bins_y": 2,
    }
    assert scored(evidence, Config(), 0)[0, 0] == pytest.approx(1 - 2 / 3)  # X = Y, m = 2


def test_grouped_connections_share_their_groups_score():
    evidence = make_evidence(c_out=4, c_in=4, samples=60)
    scores = scored(evidence, Config(groups=2), 0)
    for rows in (slice(0, 2), slice(2, 4)):
        for columns in (slice(0, 2), slice(2, 4)):
            assert np.ptp(scores[rows, columns]) == 0
    assert len(np.unique(scores)) == 4


def test_more_groups_than_filters_are_single_filters():
    evidence = make_evidence(c_out=4, c_in=3, samples=60)
    assert np.array_equal(scored(evidence, Config(groups=64), 2), scored(evidence, Config(), 2))


def test_memory_mapped_and_transposed_arrays_are_read_alike(tmp_path):
    evidence = make_evidence(samples=40)
    mapped = {}
    for name in ("windows", "outputs", "weight"):
        np.save(tmp_path / f"{name}.npy", getattr(evidence, name))
        mapped[name] = np.load(tmp_path / f"{name}.npy", mmap_mode="r")
    mapped["outputs"] = np.asfortranarray(evidence.outputs)
    same = dataclasses.replace(evidence, **mapped)
    expected = scored(evidence, Config(), 0)
    compiled = len(getattr(kernels_child.score_channel, "signatures", ()))
    assert np.array_equal(scored(same, Config(), 0), expected)
    # Read-only arrays must not make numba compile everything again.
    assert len(getattr(kernels_child.score_channel, "signatures", ())) == compiled


def test_codes_of_kernel_and_hashing_saturate_at_the_same_value():
    values = np.array([-1e30, -0.5, 1e30], np.float32)
    out = np.zeros(3, np.int32)
    kernels_child.code_bins(values, np.float32(1), np.float32(0.25), out)
    assert out.tolist() == bin_codes(values, np.float32(1), np.float32(0.25)).tolist()

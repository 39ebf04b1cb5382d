"""The layer view: compiled, against the reference run pair by pair."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from layer_evidence import make_evidence

from snacs.config import SCALINGS, Config
from snacs.scores import kernels_layer
from snacs.scores.acmi import cell_norms, estimate
from snacs.scores.grouping import blocks_of, group_norms
from snacs.scores.hashing import (
    Buckets,
    VectorHash,
    bin_codes,
    direction_count,
    draw_directions,
    draw_shifts,
    mean_deviation,
)
from snacs.scores.kernels import number_codes, sort_cells
from snacs.scores.kernels_layer import (
    number_groups,
    number_without,
    pack_children,
    sum_children,
)
from snacs.scores.layer import score_layer
from snacs.scores.parallel import Threads
from snacs.scores.scaling import rescale, scaling_value
from snacs.scores.sides import project_inputs
from snacs.values import Evidence

AGREES = 1e-6
"""Codes are identical by construction; evaluations are in single precision, summed in double."""

ONE = np.float32(1)


def number_rows(codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Dense numbers within each row of whole-numbered codes."""
    starts = np.arange(len(codes) + 1)
    numbers, counts = np.empty(codes.shape, np.int32), np.empty(len(codes), np.int64)
    half = len(codes) // 2
    for first, last in ((0, half), (half, len(codes))):  # as two threads share them
        number_groups(codes.astype(np.float32), starts, np.float32(0), first, last, numbers, counts)
    return numbers, counts


def sum_packed(packed, cells, *, edges=False):
    """Sums of all places in the blocks, from what ``pack_children`` made."""
    return sum_children(packed, packed.max(axis=2), cells, edges).reshape(-1)


def rest_codes(inputs, columns, config, directions, buckets, shift):
    """Codes of Z, all inputs (channels, N) without some: straight from the definition."""
    samples = inputs.shape[1]
    if not config.conditional or columns == slice(0, len(inputs)):
        return np.zeros(samples, int)
    if config.hash == "floor":
        codes = bin_codes(inputs, ONE, shift)
        codes[columns] = 0
        return buckets(codes)
    projection, scaled = project_inputs(inputs, directions, config.width)
    for channel in range(columns.start, columns.stop):
        projection = projection - scaled[channel][:, None] * inputs[channel]
    return number_codes(bin_codes(projection, ONE, shift))[0]


def reference(evidence: Evidence, config: Config, seed: int) -> np.ndarray:
    """Layer scores of all connections, pair by pair."""
    rng = np.random.default_rng(seed)
    layer, samples = evidence.layer, len(evidence.inputs)
    shifts = draw_shifts(rng, config.shifts)
    if mean_deviation(evidence.inputs) == 0 or mean_deviation(evidence.outputs) == 0:
        return np.zeros((layer.c_out, layer.c_in))
    inputs, outputs = (
        (side.T / (mean_deviation(side) * config.width)).astype(np.float32)
        for side in (evidence.inputs, evidence.outputs)
    )
    blocks = blocks_of(layer, config.groups)
    weights = rescale(group_norms(evidence.weight, blocks))
    count = direction_count(samples, config.directions)
    scores = np.zeros((layer.c_out, layer.c_in))
    for block in blocks:
        widest = max(part.stop - part.start for part in (*block.rows, *block.columns))
        hashing = VectorHash.draw(
            rng, kind=config.hash, dims=widest, samples=samples, directions=count
        )
        directions = draw_directions(rng, count, layer.c_in)
        buckets = Buckets.draw(rng, layer.c_in, samples)
        channels = block.channels(slice(0, layer.c_in))
        for rows, columns in [(r, c) for r in block.rows for c in block.columns]:
            read = block.channels(columns)
            rest = np.setdiff1d(np.arange(channels.start, channels.stop), np.r_[read])
            given_z = evidence.inputs[:, rest] if config.conditional else np.zeros((samples, 1))
            for shift in shifts:
                codes = (
                    hashing(outputs[rows], ONE, shift[0])[0],
                    hashing(inputs[read], ONE, shift[1])[0],
                    rest_codes(inputs[channels], columns, config, directions, buckets, shift[2]),
                )
                norms = cell_norms(
                    codes, (evidence.outputs[:, rows], evidence.inputs[:, read], given_z)
                )
                weight = float(weights[rows.start, columns.start])
                phi = scaling_value(config.scaling, weight, norms)
                scores[rows, columns] += estimate(*codes, support=config.support, scaling=phi)
    return scores / config.shifts


def scored(evidence: Evidence, config: Config, seed: int, threads: int = 1) -> np.ndarray:
    return score_layer(evidence, config, np.random.default_rng(seed), threads)[0]


@given(
    st.builds(
        make_evidence,
        c_out=st.sampled_from([2, 4, 6]),
        c_in=st.integers(1, 4),
        kernel=st.just(1),
        groups=st.sampled_from([1, 2]),
        samples=st.integers(2, 50),
        seed=st.integers(0, 10**6),
    ),
    st.builds(
        Config,
        view=st.just("layer"),
        support=st.sampled_from(["full", "edges"]),
        conditional=st.booleans(),
        width=st.sampled_from([0.05, 0.5, 2.0, 4.0]),
        shifts=st.integers(1, 2),
        scaling=st.sampled_from(SCALINGS),
        groups=st.sampled_from([None, None, 1, 2]),
        hash=st.sampled_from(["projection", "floor"]),
        directions=st.sampled_from([None, 1, 2]),
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
    evidence = make_evidence(samples=80, kernel=1, seed=5)
    config = Config(view="layer", scaling=scaling, support=support, shifts=1, width=2.0)
    assert scored(evidence, config, 3) == pytest.approx(reference(evidence, config, 3), abs=AGREES)


@given(
    samples=st.integers(1, 400),
    bins=st.sampled_from([1, 2, 3, 6, 50]),
    cells=st.integers(1, 5),
    children=st.integers(1, 9),
    support=st.sampled_from(["full", "edges"]),
    seed=st.integers(0, 10**6),
)
@settings(deadline=None, max_examples=120)
def test_every_way_through_a_cell_equals_reference(samples, bins, cells, children, support, seed):
    """Compared, looked up, by sample, by plane, beyond a byte: the sizes lead through all ways."""
    rng = np.random.default_rng(seed)
    x, bins_x = number_rows(rng.integers(0, bins, (children, samples)).astype(np.int32))
    y, bins_y = number_codes(rng.geometric(0.4, (1, samples)))
    z, cells_z = number_codes(rng.geometric(1 / cells, (1, samples)))
    packed, _, place = pack_children(x, bins_x, Threads(1))
    sorted_cells = sort_cells(z, cells_z, y, bins_y)
    total = sum_packed(packed, sorted_cells, edges=support == "edges")[place]
    expected = [estimate(row, y, z, support=support) for row in x]
    assert total / (2 * samples) == pytest.approx(expected, abs=AGREES)


def test_cells_of_more_than_255_samples_do_not_overflow():
    rng = np.random.default_rng(0)
    x = np.zeros((2, 700), np.int32)
    x[1] = rng.integers(0, 2, 700)
    y = (x[1] ^ (rng.random(700) < 0.2)).astype(np.int32)
    z = np.zeros(700, np.int32)
    packed, _, place = pack_children(x, np.array([1, 2]), Threads(1))
    total = sum_packed(packed, sort_cells(z, 1, y, 2))[place]
    assert total / 1400 == pytest.approx([0, estimate(x[1], y, z)], abs=AGREES)


def test_blocks_of_children_are_put_together():
    children = kernels_layer.WIDTH + 3
    rng = np.random.default_rng(1)
    x, bins = number_rows(rng.integers(0, 5, (children, 12)).astype(np.int32))
    y, z = rng.integers(0, 2, 12).astype(np.int32), np.zeros(12, np.int32)
    packed, most, place = pack_children(x, bins, Threads(1))
    assert len(packed) == 2
    assert most[0] <= most[1] == bins.max()
    assert [block.max() for block in packed] == list(most - 1)
    total = sum_packed(packed, sort_cells(z, 1, y, 2))[place]
    assert total / 24 == pytest.approx([estimate(row, y, z) for row in x], abs=AGREES)


def test_rank_one_update_leaves_exactly_one_input_out():
    rng = np.random.default_rng(2)
    inputs = rng.normal(size=(6, 100)).astype(np.float32)
    projection, directions = project_inputs(inputs, draw_directions(rng, 3, 6), 2.0)
    assert projection.std(axis=1) == pytest.approx(np.full(3, 0.5), abs=1e-6)
    updated = projection - np.outer(directions[2], inputs[2])
    others = [0, 1, 3, 4, 5]
    # float32 sums of six terms of order 1.
    assert updated == pytest.approx(directions[others].T @ inputs[others], abs=1e-5)
    numbers, count = number_without(projection, inputs[2:3], directions[2:3], np.float32(0.3))
    expected, cells = number_codes(np.floor(updated + np.float32(0.3)).astype(np.int32))
    assert (numbers == expected).all()
    assert count == cells


def test_threads_do_not_change_a_bit():
    evidence = make_evidence(c_out=6, c_in=5, samples=90)
    for options in ({}, {"groups": 2}, {"hash": "floor"}, {"scaling": "activations"}):
        config = Config(view="layer", **options)
        assert np.array_equal(scored(evidence, config, 0, 1), scored(evidence, config, 0, 2))


def test_constant_filters_score_zero():
    evidence = make_evidence(c_out=3, c_in=3, kernel=1, samples=80)
    inputs, outputs = evidence.inputs.copy(), evidence.outputs.copy()
    inputs[:, 1] = 0.7
    outputs[:, 2] = -3
    quiet = make_evidence(c_out=3, c_in=3, kernel=1, samples=80, inputs=inputs, outputs=outputs)
    scores = scored(quiet, Config(view="layer", width=2.0), 0)
    assert (scores[:, 1] == 0).all()
    assert (scores[2] == 0).all()
    assert scores[0, 0] > 0
    silent = make_evidence(samples=20, inputs=np.ones((20, 3)))
    values, occupancy = score_layer(silent, Config(view="layer"), np.random.default_rng(0), 1)
    assert (values == 0).all()
    assert occupancy == {}


def test_a_single_input_has_nothing_to_be_conditioned_on():
    evidence = make_evidence(c_in=1, samples=80)
    given_rest = scored(evidence, Config(view="layer"), 0)
    assert np.array_equal(given_rest, scored(evidence, Config(view="layer", conditional=False), 0))


def test_scores_do_not_depend_on_the_units_of_either_side():
    evidence = make_evidence(samples=80)
    # Powers of two keep every float32 operation exact up to scale.
    scaled = make_evidence(samples=80, inputs=evidence.inputs * 8, outputs=evidence.outputs / 64)
    config = Config(view="layer", width=1.0)
    assert scored(scaled, config, 0) == pytest.approx(scored(evidence, config, 0), abs=AGREES)


def test_literal_hash_of_a_wide_condition_leaves_samples_alone_and_the_report_says_so():
    evidence = make_evidence(c_in=24, c_out=2, kernel=1, samples=200)
    literal = score_layer(
        evidence, Config(view="layer", hash="floor", width=1.0), np.random.default_rng(0), 1
    )
    projected = score_layer(
        evidence, Config(view="layer", directions=2, width=2.0), np.random.default_rng(0), 1
    )
    assert literal[1]["singletons"] > 0.8
    assert projected[1]["informative"] > 0.9
    assert projected[1]["mean_cell"] > literal[1]["mean_cell"]


def test_a_child_that_copies_its_parent_scores_highest():
    rng = np.random.default_rng(3)
    windows = rng.normal(size=(600, 3, 1))
    weight = np.full((1, 3, 1), 0.1)
    weight[0, 1] = 2.0
    evidence = make_evidence(c_out=1, c_in=3, kernel=1, samples=600, windows=windows, weight=weight)
    assert scored(evidence, Config(view="layer", width=1.0, directions=2), 0)[0].argmax() == 1

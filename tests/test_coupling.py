"""Coupling: by hand, against a plain loop, and in a whole plan."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import snacs
from snacs.coupling import ROUNDS, couple
from snacs.errors import InputError
from snacs.network.cost import cost
from snacs.streams import streams
from snacs.values import NETWORK_INPUT, Layer, Segment, Structure
from structures import random_structure, residual


def _chain():
    """first (2 filters of 2 channels) → second (1 filter), and a kept head."""
    return Structure(
        layers=(
            Layer("first", "Conv2d", 2, 2, 1, feeds=(Segment(NETWORK_INPUT, 0, 0, 2),)),
            Layer("second", "Conv2d", 1, 2, 1, feeds=(Segment("first", 0, 0, 2),)),
            Layer("head", "Linear", 1, 1, 1, feeds=(Segment("second", 0, 0, 1),), kept_because="h"),
        ),
        outputs=(Segment("head", 0, 0, 1),),
    )


FIRST, SECOND = np.array([[3.0, 2.0], [2.5, 2.0]]), np.array([[9.0, 1.0]])


def test_by_hand():
    """One of second's two kernels goes, so filter 1 of first is read by nobody: its inputs go."""
    scores = {"first": FIRST, "second": SECOND}
    found = couple(_chain(), scores, {"first": 2, "second": 1}, {}, power=1.0)
    assert found["first"].tolist() == [[3.0, 2.0], [0.0, 0.0]]
    assert found["second"].tolist() == [[9.0, 0.0]]  # first keeps row 0 whole, nothing of row 1


def test_a_square_root_by_hand():
    """Nothing of second goes; of first the lower row keeps 2.5 of 4.5."""
    scores = {"first": FIRST, "second": SECOND}
    found = couple(_chain(), scores, {"first": 1}, {"first": np.array([True, False])}, power=0.5)
    assert found["first"].tolist() == FIRST.tolist()
    np.testing.assert_allclose(found["second"], [[9.0, (2.5 / 4.5) ** 0.5]])


def test_magnitudes_are_squared():
    scores = {"first": FIRST, "second": SECOND}
    counts = {"first": 2, "second": 1}
    squares = {name: values**2 for name, values in scores.items()}
    ours = couple(_chain(), scores, counts, {}, power=0.7, squared=True)
    theirs = couple(_chain(), squares, counts, {}, power=0.7)
    assert all((ours[name] == theirs[name]).all() for name in scores)


def test_power_zero_changes_nothing():
    scores = {"first": FIRST, "second": SECOND}
    found = couple(_chain(), scores, {"first": 2}, {}, power=0.0, squared=True)
    assert found == scores


def test_residual_streams_count_as_whole():
    """Of the toy network only a1 and b1 are written once and read once."""
    structure = residual()
    rng = np.random.default_rng(0)
    scores = {p.name: rng.random((p.c_out, p.c_in)) for p in structure.prunable}
    counts = {p.name: p.connections // 2 for p in structure.prunable}
    found = couple(structure, scores, counts, {}, power=1.0)
    factors = {name: found[name] / scores[name] for name in scores}
    for name in ("a1", "b1"):  # what they read is a stream: one factor per row
        assert (np.ptp(factors[name], axis=1) < 1e-12).all()
        assert np.ptp(factors[name][:, 0]) > 0.01
    for name in ("a2", "b2"):  # what they write is a stream: one factor per column
        assert (np.ptp(factors[name], axis=0) < 1e-12).all()
        assert np.ptp(factors[name][0]) > 0.01


def test_bad_scores_name_their_layer():
    scores = {"first": FIRST, "second": SECOND * np.nan}
    with pytest.raises(InputError, match=r"'second'.*NaN"):
        couple(_chain(), scores, {}, {}, power=1.0)


def _plain(structure, scores, counts, protected, power):
    """The same, filter by filter."""
    free = [s for s in streams(structure) if s.kept_because is None and len(s.members) == 1]
    writer = {s.members[0]: s for s in free}
    reader = {place: s for s in free for place in s.readers}

    def mask_of(layer, values):
        order = sorted(
            (values[i, j], i, j)
            for i in range(layer.c_out)
            for j in range(layer.c_in)
            if not protected.get(layer.name, np.zeros(layer.c_out, bool))[i]
        )
        keep = np.ones(values.shape, dtype=bool)
        for _, i, j in order[: counts.get(layer.name, 0)]:
            keep[i, j] = False
        return keep

    keep = {p.name: mask_of(p, scores[p.name]) for p in structure.prunable}

    def row_left(name, i):
        if name not in keep or not scores[name][i].sum() > 0:
            return 1.0
        return scores[name][i][keep[name][i]].sum() / scores[name][i].sum()

    def channel_left(name, channel):
        if name not in keep:
            return 1.0
        there = structure[name].channel_of() == channel
        whole = scores[name][there].sum()
        return scores[name][there & keep[name]].sum() / whole if whole > 0 else 1.0

    found = dict(scores)
    for _ in range(ROUNDS):
        before = {name: mask.copy() for name, mask in keep.items()}
        for layer in structure.prunable:
            values = scores[layer.name].copy()
            table = layer.channel_of()
            for i in range(layer.c_out):
                for j in range(layer.c_in):
                    own = writer.get((layer.name, i))
                    fed = reader.get((layer.name, int(table[i, j])))
                    read = 1.0
                    if own is not None and own.readers:
                        read = np.mean([channel_left(*place) for place in own.readers])
                    written = 1.0 if fed is None else row_left(*fed.members[0])
                    values[i, j] *= (read * written) ** power
            found[layer.name] = values
            keep[layer.name] = mask_of(layer, values)
        if all((before[name] == keep[name]).all() for name in keep):
            break
    return found


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([0.25, 0.5, 1.0, 2.0]))
def test_agrees_with_a_plain_loop(seed, power):
    rng = np.random.default_rng(seed)
    structure = random_structure(rng)
    # Few distinct values: ties and rows of zeros happen.
    scores = {
        p.name: rng.integers(0, 9, (p.c_out, p.c_in)).astype(float) for p in structure.prunable
    }
    protected = {p.name: rng.random(p.c_out) < 0.2 for p in structure.prunable}
    counts = {
        p.name: int(rng.random() * (~protected[p.name]).sum() * p.c_in) for p in structure.prunable
    }
    ours = couple(structure, scores, counts, protected, power=power)
    theirs = _plain(structure, scores, counts, protected, power)
    for name in theirs:
        np.testing.assert_allclose(ours[name], theirs[name], rtol=1e-12)


class _Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(1, 16, 3, padding=1)
        self.conv1, self.bn1 = nn.Conv2d(16, 16, 3, padding=1), nn.BatchNorm2d(16)
        self.conv2, self.bn2 = nn.Conv2d(16, 16, 3, padding=1), nn.BatchNorm2d(16)
        self.head = nn.Linear(16, 3)

    def forward(self, x):
        x = self.stem(x).relu()
        x = (x + self.bn2(self.conv2(self.bn1(self.conv1(x)).relu()))).relu()
        return self.head(x.mean((2, 3)))


@pytest.fixture(scope="module")
def images():
    rng = torch.Generator().manual_seed(0)
    return [(torch.rand(20, 1, 8, 8, generator=rng), torch.arange(20) % 3) for _ in range(2)]


def test_a_whole_plan(images):
    """As many connections of every layer, but more filters dead on both sides."""
    torch.manual_seed(0)
    model = _Block().eval()
    options = {"score": "l2", "target": 0.6, "count": 40, "batch": 20, "curves": False}
    plain = snacs.plan(model, images, **options)
    coupled = snacs.plan(model, images, coupling=1.0, **options)
    for ours, theirs in zip(coupled.layers, plain.layers, strict=True):
        assert ours.kept == theirs.kept
        assert (ours.scores == theirs.scores).all()  # what a report shows is the score itself
    dead = ~coupled["conv1"].keep.any(axis=1)
    assert dead.sum() > (~plain["conv1"].keep.any(axis=1)).sum()
    assert (dead == ~coupled["conv2"].keep.any(axis=0)).all()
    costs = [cost(made.structure, made.masks).macs_compacted for made in (coupled, plain)]
    assert costs[0] < costs[1]


def test_where_it_cannot_work_it_says_so(images):
    model = _Block().eval()
    with pytest.raises(InputError, match="sequential=False"):
        snacs.plan(model, images, target=0.5, coupling=0.5)
    with pytest.raises(InputError, match="single connections"):
        snacs.plan(model, images, target=0.5, coupling=0.5, score="l2", granularity="filter")
    with pytest.raises(InputError, match="negative"):
        snacs.plan(model, images, target=0.5, coupling=-1, score="l2")

"""Exchanging kernels: what the outputs need comes back, counts hold, the network is left alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from snacs.network.batchnorm import reestimate_
from snacs.network.exchanging import Gate, exchange

NOBODY: dict[str, np.ndarray] = {}


def _images(
    count: int, *, size: int = 50, seed: int = 0
) -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.zeros(size, dtype=torch.long)
    return [(torch.randn(size, 3, 6, 6, generator=generator), labels) for _ in range(count)]


class Net(nn.Module):
    """A convolution, a grouped one, and a Linear that reads channels behind a Flatten."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(8)
        self.grouped = nn.Conv2d(8, 8, 3, stride=2, padding=1, groups=2)
        self.drop = nn.Dropout(0.5)
        self.head = nn.Linear(8 * 9, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.norm(self.conv(x)))
        return self.head(self.drop(torch.relu(self.grouped(x)).flatten(1)))


SHAPES = {"conv": (8, 3), "grouped": (8, 4), "head": (4, 8)}


def _network() -> nn.Module:
    model = Net().eval()
    reestimate_(model, _images(2, seed=9))
    return model


def _start(seed: int = 0):
    """Random scores, and masks that cut half of every layer by them."""
    rng = np.random.default_rng(seed)
    scores = {name: rng.random(shape) for name, shape in SHAPES.items()}
    return {name: s > np.median(s) for name, s in scores.items()}, scores


def _masks(found, masks):
    """As many as in ``masks``, the highest ones."""
    cut = {name: np.sort(found[name].ravel())[-masks[name].sum()] for name in masks}
    return {name: found[name] >= cut[name] for name in masks}


@given(seed=st.integers(0, 1000), rows=st.integers(1, 5), columns=st.integers(1, 5), data=st.data())
def test_a_gate_keeps_its_count_whatever_moves(seed, rows, columns, data):
    rng = np.random.default_rng(seed)
    kept = data.draw(st.integers(1, rows * columns))
    scores = rng.random((rows, columns))
    best = scores >= np.sort(scores.ravel())[-kept]
    gate = Gate(scores, best)
    np.testing.assert_array_equal(gate.keep, best)
    with torch.no_grad():
        gate.place += torch.from_numpy(rng.normal(size=(rows, columns))).float()
    assert gate.keep.sum() == kept
    out = gate(torch.ones(rows, columns))
    np.testing.assert_array_equal(out.detach().numpy() != 0, gate.keep)


def test_gradients_reach_what_is_cut_as_if_it_were_kept():
    gate = Gate(np.array([[2.0, 1.0]]), np.array([[True, False]]))
    weight = torch.tensor([[3.0, 5.0]])
    (gate(weight) * torch.tensor([[1.0, 10.0]])).sum().backward()
    # d/dgate of Σ c·w·gate is c·w, for the cut one too.
    assert gate.place.grad.tolist() == [[3.0, 50.0]]


def test_what_the_outputs_need_comes_back():
    """Each logit is one of the last four inputs, and the scores prefer the first four."""
    model = nn.Sequential(nn.Linear(8, 4, bias=False))
    needed = np.eye(4, 8, k=4, dtype=bool)
    with torch.no_grad():
        model[0].weight.copy_(2.0 * torch.from_numpy(needed))
    masks = {"0": np.eye(4, 8, dtype=bool)}
    scores = {"0": 2.0 * masks["0"] + needed}
    torch.manual_seed(0)
    batches = [torch.randn(50, 8) for _ in range(300)]
    found, notes = exchange(model, batches, masks, scores, protected=NOBODY)
    np.testing.assert_array_equal(_masks(found, masks)["0"], needed)
    assert notes == ["4 of 4 kept connections are others after 300 batches."]


def test_outputs_of_the_whole_network_come_closer():
    model, batches = _network(), _images(300)
    masks, scores = _start()
    found, _ = exchange(model, batches, masks, scores, protected=NOBODY)

    def distance(keep):
        pruned = _network()
        with torch.no_grad():
            for name, mask in keep.items():
                weight = pruned.get_submodule(name).weight
                spread = np.repeat(mask, weight[0].numel() // mask.shape[1], axis=1)
                weight.mul_(torch.from_numpy(spread).reshape(weight.shape))
            reestimate_(pruned, _images(4, seed=5))
            return sum(float((pruned(x) - model(x)).square().mean()) for x, _ in _images(4, seed=6))

    # 0.74 of it on this random network; the margin is for other machines.
    assert distance(_masks(found, masks)) < 0.85 * distance(masks)


def test_what_comes_back_takes_no_place_of_protected_filters():
    """As above, but all of filter 0 stays: scored lowest, its inputs would be the first to go."""
    model = nn.Sequential(nn.Linear(8, 4, bias=False))
    needed, useless = np.eye(4, 8, k=4, dtype=bool), np.eye(4, 8, dtype=bool)
    with torch.no_grad():
        model[0].weight.copy_(2.0 * torch.from_numpy(needed))
    first = np.arange(4) == 0
    masks, scores = {"0": useless | first[:, None]}, {"0": 2.0 * useless + needed}
    scores["0"][0] = 0.0
    torch.manual_seed(0)
    batches = [torch.randn(50, 8) for _ in range(300)]
    found, notes = exchange(model, batches, masks, scores, protected={"0": first})
    assert notes == ["3 of 11 kept connections are others after 300 batches."]
    rest = found["0"][1:]
    assert rest[needed[1:]].min() > rest[useless[1:]].max()
    assert found["0"].min() == 0


def test_a_gate_never_closes_on_a_protected_filter():
    scores = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    keep = np.array([[True, True], [False, False], [False, True]])
    gate = Gate(scores, keep, np.array([True, False, False]))
    np.testing.assert_array_equal(gate.keep, keep)  # whatever the scores say
    with torch.no_grad():
        gate.place[0] -= 100.0
        gate.place[1, 0] += 100.0
    assert gate.keep.tolist() == [[True, True], [True, False], [False, False]]


def test_the_network_is_left_as_it_was_and_the_same_call_gives_the_same():
    model = _network()
    model.train()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    masks, scores = _start()
    first, _ = exchange(model, _images(5), masks, scores, protected=NOBODY)
    again, _ = exchange(model, _images(5), masks, scores, protected=NOBODY)
    for name in SHAPES:
        np.testing.assert_array_equal(first[name], again[name])
    assert all(torch.equal(before[n], t) for n, t in model.state_dict().items())
    assert all(p.requires_grad and p.grad is None for p in model.parameters())
    assert all(module.training for module in model.modules())


def test_one_image_that_is_left_over_does_no_harm():
    masks, scores = _start()
    batches = [*_images(3), *_images(1, size=1)]
    found, notes = exchange(_network(), batches, masks, scores, protected=NOBODY)
    plain, _ = exchange(_network(), batches[:3], masks, scores, protected=NOBODY)
    assert notes[0].endswith("after 3 batches.")
    for name in SHAPES:
        np.testing.assert_array_equal(found[name], plain[name])


@pytest.mark.parametrize(("how", "why"), [("detach", "differentiable"), ("nan", "finite")])
def test_where_nothing_can_be_learnt_the_scores_stay_and_a_note_says_why(how, why):
    def forward(model, batch):
        logits = model(batch[0])
        return logits.detach() if how == "detach" else logits * float("nan")

    masks, scores = _start()
    found, notes = exchange(
        _network(), _images(2), masks, scores, protected=NOBODY, forward=forward
    )
    assert found == scores
    assert notes == [f"No kernels were exchanged: the outputs are not {why}."]


def test_progress_is_told_batch_by_batch():
    seen = []
    masks, scores = _start()
    exchange(
        _network(), _images(3), masks, scores, protected=NOBODY,
        progress=lambda done, total, words: seen.append((done, total, words[:3])),
    )  # fmt: skip
    assert seen == [(1, 3, "KL "), (2, 3, "KL "), (3, 3, "KL ")]

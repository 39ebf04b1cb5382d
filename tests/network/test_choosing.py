"""Choosing layer after layer: what is settled, what is wanted, and that it pays."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import nn

from snacs.network import tasks
from snacs.network.batchnorm import reestimate_
from snacs.network.choosing import sequential_scores
from snacs.network.layers import find_structure
from snacs.network.masking import apply_
from snacs.scores.information import information
from snacs.selection import select


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inner = torch.relu(self.bn1(self.conv1(x)))
        return torch.relu(self.bn2(self.conv2(inner)) + x)


def _network() -> tuple[nn.Module, list[tuple[torch.Tensor, torch.Tensor]]]:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(),
        Block(8), Block(8), Block(8),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4),
    )  # fmt: skip
    batches = [(torch.randn(32, 3, 8, 8), torch.zeros(32, dtype=torch.long)) for _ in range(4)]
    reestimate_(model, batches)
    return model.eval(), batches


def _halves(structure, fraction=0.6):
    rng = np.random.default_rng(0)
    return {
        layer.name: rng.permutation(np.arange(layer.connections) >= fraction * layer.connections)
        .reshape(layer.c_out, layer.c_in)
        for layer in structure.prunable
    }  # fmt: skip


def _choose(model, batches, structure, masks, **options):
    defaults = {"least_squares": False, "protected": {}}
    return sequential_scores(
        model,
        batches,
        masks,
        structure=structure,
        score=information,
        importance={layer.name: np.ones(layer.c_out) for layer in structure.prunable},
        **{**defaults, **options},
    )


def _masks(structure, scores, masks):
    counts = {name: int((~mask).sum()) for name, mask in masks.items()}
    return select(structure, scores, counts, {})


def _distance(model, dense, masks, batches, structure) -> float:
    pruned = copy.deepcopy(model)
    apply_(pruned, masks, structure=structure)
    reestimate_(pruned, batches)
    with torch.no_grad():
        return float(sum((pruned(x) - dense(x)).square().mean() for x, _ in batches))


def test_outputs_come_closer_than_by_magnitude() -> None:
    model, batches = _network()
    structure = find_structure(model, batches[0])
    start = _halves(structure)
    found, notes = _choose(model, batches, structure, start)
    assert notes == []
    assert set(found) == {layer.name for layer in structure.prunable}
    chosen = _masks(structure, found, start)
    plain = {}
    for layer in structure.prunable:
        weight = model.get_submodule(layer.name).weight.detach().flatten(2)
        plain[layer.name] = weight.norm(dim=2).numpy()
    magnitude = _masks(structure, plain, start)
    dense = copy.deepcopy(model)
    ours = _distance(model, dense, chosen, batches, structure)
    # A quarter less on this random network; the margin is for other BLAS libraries.
    assert ours < 0.9 * _distance(model, dense, magnitude, batches, structure)


@pytest.mark.parametrize("least_squares", [False, True])
def test_the_model_is_left_alone_and_protected_filters_stay(least_squares: bool) -> None:
    model, batches = _network()
    structure = find_structure(model, batches[0])
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    start = _halves(structure)
    name = structure.prunable[0].name
    rows = np.zeros(structure[name].c_out, dtype=bool)
    rows[:2] = True
    free, _ = _choose(model, batches, structure, start, least_squares=least_squares)
    held, _ = _choose(
        model, batches, structure, start, least_squares=least_squares, protected={name: rows}
    )
    # The first layer sees the same inputs either way; later ones see what protection changed.
    np.testing.assert_allclose(held[name], free[name])
    last = structure.prunable[-1].name
    assert not np.allclose(held[last], free[last])
    for key, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[key])


def test_layers_that_cannot_be_treated_in_order_keep_their_masks_and_are_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model, batches = _network()
    structure = find_structure(model, batches[0])
    monkeypatch.setattr(tasks, "WIDEST", 71)  # 8 channels of 9 weights are 72 columns
    found, notes = _choose(model, batches, structure, _halves(structure))
    assert found == {}
    assert len(notes) == len(structure.prunable)
    assert "72 columns" in notes[0]


def test_the_second_layer_sees_the_first_one_pruned_and_measured_again() -> None:
    model, batches = _network()
    structure = find_structure(model, batches[0])
    start = _halves(structure)
    found, _ = _choose(model, batches, structure, start, silence=False)
    first, second = "3.conv1", "3.conv2"
    pruned = copy.deepcopy(model)
    apply_(pruned, {first: _masks(structure, found, start)[first]}, silence=False)
    reestimate_(pruned, batches)
    x = torch.cat([images for images, _ in batches])
    seen: dict[str, torch.Tensor] = {}
    inner, dense = pruned.get_submodule(second), model.get_submodule(second)
    inner.register_forward_hook(lambda _m, args, _o: seen.__setitem__("inputs", args[0]))
    handle = dense.register_forward_hook(lambda _m, _a, output: seen.__setitem__("aim", output))
    with torch.no_grad():
        pruned(x)
        model(x)
    handle.remove()
    windows = nn.functional.unfold(seen["inputs"], 3, padding=1).transpose(0, 1).flatten(1)
    aims = seen["aim"].transpose(0, 1).flatten(1)
    centred = (windows - windows.mean(1, keepdim=True)).double().numpy()
    wanted = (aims - aims.mean(1, keepdim=True)).double().numpy()
    count = centred.shape[1]
    expected = information(
        dense.weight.detach().flatten(2).double().numpy(),
        centred @ centred.T / count,
        importance=np.ones(len(wanted)),
        cross=wanted @ centred.T / count,
        power=(wanted**2).mean(axis=1),
    )
    # Variances measured again are means over batches, and unbiased; the sums here are over all.
    # That is a thousandth of the largest score.
    np.testing.assert_allclose(found[second], expected, atol=1e-3 * expected.max())

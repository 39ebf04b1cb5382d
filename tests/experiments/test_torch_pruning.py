"""Torch-Pruning at equal MACs: only free filters, and masks that mean what it did."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from snacs.cli import main
from snacs.errors import InputError, ModelError
from snacs.experiments.methods import method_of
from snacs.experiments.torch_pruning import _check, free_layers, plan_at_macs, removed_filters
from snacs.network.cost import cost
from snacs.network.layers import find_structure
from snacs.selection import select
from snacs.zoo.entry import seeded
from snacs.zoo.networks import ResNet56, SmallConvNet, SmallResNet
from snacs.zoo.weights import save_weights

pytest.importorskip("torch_pruning")


@pytest.fixture
def small():
    model = seeded(SmallResNet, seed=0).eval()
    example = torch.randn(2, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    return model, find_structure(model, example), example


def test_of_a_cifar_resnet_only_the_inner_filters_are_free():
    structure = find_structure(ResNet56().eval(), torch.zeros(2, 3, 32, 32))
    free = free_layers(structure)
    assert len(free) == 27
    assert all(name.endswith("conv1") and name.startswith("layer") for name in free)


def test_macs_are_met_and_masks_are_what_was_removed(small):
    model, structure, example = small
    plan = plan_at_macs(model, structure, example, 0.2, method_of("torch-pruning").config)
    found = cost(structure, plan.masks)
    gone = 1 - found.macs_compacted / found.macs
    assert 0.2 <= gone < 0.3
    assert {part.layer.name for part in plan.layers if part.dead.any()} <= set(
        free_layers(structure)
    )
    with pytest.raises(InputError, match="at most"):
        plan_at_macs(model, structure, example, 0.995, method_of("torch-pruning").config)


def test_narrow_layers_go_on_giving_where_most_has_to_go():
    model, example = seeded(ResNet56, seed=0).eval(), torch.zeros(2, 3, 32, 32)
    structure = find_structure(model, example)
    free = free_layers(structure)
    removed, _ = removed_filters(model, structure, example, free, 0.97)
    left = [len(rows) - rows.sum() for rows in removed.values()]
    assert left == [1] * 27
    found = cost(structure, select(structure, {}, {}, {}, removed=removed))
    assert 1 - found.macs_compacted / found.macs > 0.9


def test_a_mask_that_means_something_else_is_noticed(small):
    model, structure, example = small
    free = free_layers(structure)
    removed, made = removed_filters(model, structure, example, free, 0.5)
    _check(model, made, structure, select(structure, {}, {}, {}, removed=removed), example)
    other = {name: np.roll(rows, 1) for name, rows in removed.items()}
    with pytest.raises(ModelError, match="something else"):
        _check(model, made, structure, select(structure, {}, {}, {}, removed=other), example)


def test_it_is_a_method_of_compare(tmp_path, capsys):
    weights = tmp_path / "w.safetensors"
    save_weights(seeded(SmallConvNet, seed=1), weights)
    words = ["compare", "small-conv", "--weights", str(weights), "--images", "40", "--test-images"]
    words += ["40", "--target", "0.3", "--methods", "torch-pruning,default", "--quiet", "--json"]
    assert main([*words, "--run", str(tmp_path / "run")]) == 0
    theirs, ours = json.loads(capsys.readouterr().out)["cells"]
    assert theirs["macs_compacted"] >= ours["macs"]
    assert theirs["macs_compacted"] == pytest.approx(ours["macs"], abs=0.12)

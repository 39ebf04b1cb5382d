"""What a change of an output is worth, against explicit Jacobians."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from snacs.errors import InputError
from snacs.network import importance
from snacs.network.importance import output_importance
from snacs.network.layers import find_structure


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(2, 3, 3, padding=1)
        self.second = nn.Conv2d(3, 4, 3, padding=1)
        self.act = nn.ReLU(inplace=True)
        self.middle = nn.Linear(4, 5)
        self.last = nn.Linear(5, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.act(self.second(self.act(self.first(x))))
        return self.last(self.act(self.middle(x.mean(dim=(2, 3)))))


def _case() -> tuple[Small, torch.Tensor]:
    torch.manual_seed(0)
    return Small(), torch.randn(6, 2, 5, 5)


def test_mean_square_of_centred_jacobians(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = _case()
    monkeypatch.setattr(importance, "ENOUGH", 10_000)
    structure = find_structure(model, (x, torch.zeros(6)))
    # The signs are random: the mean over many draws of the same images comes close.
    found = output_importance(model, structure, [x] * 300, seed=0)

    def tail(y: torch.Tensor) -> torch.Tensor:
        logits = model.last(torch.relu(model.middle(torch.relu(y).mean(dim=(2, 3)))))
        return logits - logits.mean(dim=1, keepdim=True)

    middle = model.second(torch.relu(model.first(x))).detach()
    total = torch.zeros(4)
    for image in middle:
        jacobian = torch.autograd.functional.jacobian(tail, image[None])[0, :, 0]
        total += jacobian.square().sum(dim=(0, 2, 3))
    # 1,800 draws of three signs: the standard error is a few percent.
    np.testing.assert_allclose(found["second"], (total / 6).numpy(), rtol=0.15, atol=1e-9)
    assert set(found) == {layer.name for layer in structure.prunable}


def test_frozen_networks_and_their_gradients_stay_as_they_were() -> None:
    model, x = _case()
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    model.train()
    structure = find_structure(model, (x, torch.zeros(6)))
    found = output_importance(model, structure, [(x, torch.zeros(6))], seed=1)
    assert all((values >= 0).all() and values.any() for values in found.values())
    assert all(parameter.grad is None for parameter in model.parameters())
    assert model.training
    assert not any(module._forward_hooks for module in model.modules())


def test_chunks_do_not_matter_for_what_is_seen() -> None:
    model, x = _case()
    structure = find_structure(model, (x, torch.zeros(6)))
    whole = output_importance(model, structure, [x], seed=3)
    split = output_importance(model, structure, [x[:2], x[2:]], seed=3)
    # The same signs are drawn in another grouping; sums run in another order.
    np.testing.assert_allclose(whole["second"], split["second"], rtol=1e-5)


class Detached(Small):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x).detach()


def test_what_cannot_be_differentiated_is_said() -> None:
    torch.manual_seed(0)
    model, x = Detached(), torch.randn(4, 2, 5, 5)
    structure = find_structure(model, (x, torch.zeros(4)))
    with pytest.raises(InputError, match="score='acmi'"):
        output_importance(model, structure, [x], seed=0)
    with pytest.raises(InputError, match="no calibration images"):
        output_importance(model, structure, [], seed=0)

"""Would masks that training finds be better ones? The dense weights repaired under such masks.

The repaired network is trained on all training images with the dense one as teacher, and its
masks with it: gradients reach cut kernels too, and every layer keeps the kernels that are largest
by then (dynamic pruning with feedback, Lin et al. 2020). Only the masks are taken from that: no
score could know as much. If they are no better after repair, the choice of kernels is not what
is missing.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize
from workbench import Workbench, answer

from snacs.network.masking import apply_, bake_, masks_of
from snacs.training import recipe, train_

EVERY = 16
"""Steps between two choices of the kernels that stay."""
HANDICAP = 0.25
"""Of the squared size of kernels that were cut at first, beside magnitudes: or they would all be
exchanged for the larger ones at once."""


class Learned(nn.Module):
    """The weights of one layer without the smallest kernels; gradients pass as if none were cut."""

    def __init__(self, keep: Tensor, *, handicap: float) -> None:
        super().__init__()
        self.keep, self.kept, self.calls = keep, int(keep.sum()), 0
        self.worth = torch.where(keep, 1.0, handicap)

    def forward(self, weight: Tensor) -> Tensor:
        self.calls += self.training
        if self.training and self.calls % EVERY == 0:
            sizes = weight.detach().square().flatten(2).sum(2) * self.worth
            best = sizes.flatten().topk(self.kept).indices
            self.keep = torch.zeros(sizes.numel(), dtype=torch.bool)
            self.keep[best] = True
            self.keep = self.keep.reshape(sizes.shape)
        cut = weight * self.keep[:, :, None, None]
        return weight + (cut - weight).detach()

    def right_inverse(self, weight: Tensor) -> Tensor:
        return weight


def learn(bench: Workbench, model: nn.Module, *, epochs: int, handicap: float) -> dict[str, Any]:
    """Masks of a repaired network after training it and them."""
    keep, parts = masks_of(model), {}
    bake_(model)
    for name, mask in keep.items():
        module, stays = model.get_submodule(name), torch.from_numpy(mask)
        dense = bench.dense.get_submodule(name).weight.detach()
        with torch.no_grad():
            module.weight.copy_(torch.where(stays[:, :, None, None], module.weight, dense))
        parts[name] = Learned(stays, handicap=handicap)
        parametrize.register_parametrization(module, "weight", parts[name])
    way = recipe("brief", start_share=0.0, epochs=epochs, channels_last=True)
    train = bench.material.train(bench.seed, way.batch)
    train_(model, train, recipe=way, teacher=bench.dense, seed=bench.seed)
    return {name: part.keep.numpy() for name, part in parts.items()}


def ask(bench: Workbench, target: float, *, shorter: bool) -> None:
    plan = bench.plan(target)
    magnitudes = bench.masked(plan, bench.magnitudes(bench.dense))
    default = copy.deepcopy(bench.dense)
    apply_(default, plan.masks, structure=plan.structure)
    for words, model, handicap in (("default", default, HANDICAP), ("magnitudes", magnitudes, 1.0)):
        start = masks_of(model)
        bench.repair(model)
        bench.show(f"{target:.0%}, {words}", model)
        found = learn(bench, model, epochs=1 if shorter else 2, handicap=handicap)
        bench.show(f"{target:.0%}, {words}, trained", model)
        new = sum(int((found[name] & ~mask).sum()) for name, mask in start.items())
        share = new / sum(int(np.sum(mask)) for mask in start.values())
        again = copy.deepcopy(bench.dense)
        apply_(again, found, structure=plan.structure)
        bench.repair(again)
        bench.show(f"{target:.0%}, {words}, {share:.0%} of the kernels others by training", again)


if __name__ == "__main__":
    answer(ask, __doc__, shorter="train for one epoch instead of two")

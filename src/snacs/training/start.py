"""The mean of the weights that training began with and of those that it arrived at.

A repaired network and what a short training made of it err in different ways: their mean, weight by
weight, is better than either (docs/research.md; Wortsman et al., *Robust fine-tuning of zero-shot
models*, 2022, average a network with its fine-tuned self in the same way).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import replace

import torch
from torch import Tensor, nn

from snacs.network.masking import Mask
from snacs.training.recipes import Recipe


def floating(model: nn.Module) -> dict[str, Tensor]:
    """Copies of all weights and statistics; counters and masks are not averaged."""
    return {name: tensor.detach().clone() for name, tensor in _floating(model)}


def drawn_back_(model: nn.Module, start: Mapping[str, Tensor], share: float) -> None:
    """Let every tensor of ``start`` make up ``share`` of the network's own.

    >>> one = nn.Linear(1, 1, bias=False)
    >>> drawn_back_(one, {"weight": one.weight + 2}, 0.0)  # nothing of it
    >>> before = floating(one)
    >>> drawn_back_(one, {"weight": one.weight + 2}, 0.5)
    >>> float(one.weight.detach() - before["weight"])
    1.0
    """
    with torch.no_grad():
        for name, tensor in _floating(model):
            if name in start:
                tensor.lerp_(start[name].to(tensor), share)


def fitting(recipe: Recipe, model: nn.Module) -> Recipe:
    """The recipe for this network: only what repair has dealt with is worth going back to."""
    masks = [module for module in model.modules() if isinstance(module, Mask)]
    repaired = bool(masks) and all(bool(mask.repaired) for mask in masks)
    return recipe if repaired or not recipe.start_share else replace(recipe, start_share=0.0)


def _floating(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Every tensor once, also where two layers share it."""
    for name, tensor in itertools.chain(model.named_parameters(), model.named_buffers()):
        if tensor.is_floating_point():
            yield name, tensor

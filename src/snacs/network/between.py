"""Networks between two others: weights and statistics averaged, tensor by tensor."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn


def floating(model: nn.Module) -> dict[str, Tensor]:
    """Copies of all weights and statistics; counters and masks are not averaged."""
    return {name: tensor.detach().clone() for name, tensor in _floating(model)}


def drawn_back_(model: nn.Module, start: Mapping[str, Tensor], share: float) -> None:
    """Let every tensor of ``start`` make up ``share`` of the network's own.

    >>> one = nn.Linear(1, 1, bias=False)
    >>> before = floating(one)
    >>> drawn_back_(one, {"weight": one.weight + 2}, 0.5)
    >>> round(float(one.weight.detach() - before["weight"]), 5)
    1.0
    """
    with torch.no_grad():
        for name, tensor in _floating(model):
            if name in start:
                tensor.lerp_(start[name].to(tensor), share)


def _floating(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Every tensor once, also where two layers share it."""
    for name, tensor in itertools.chain(model.named_parameters(), model.named_buffers()):
        if tensor.is_floating_point():
            yield name, tensor

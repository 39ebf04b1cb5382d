"""The mean of the weights that training began with and of those that it arrived at.

A repaired network and what a short training made of it err in different ways: their mean, weight by
weight, can be better than either (docs/research.md; Wortsman et al., *Robust fine-tuning of
zero-shot models*, 2022, average a network with its fine-tuned self in the same way). A poor start
is nothing to go back to, so the loss on training images is asked each time.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn


class Start:
    """Where a network began, and whether going back a ``share`` of the way is better."""

    def __init__(self, model: nn.Module, share: float) -> None:
        self.share = share
        self.tensors = floating(model) if share else {}
        self.better = False

    def ask(self, model: nn.Module, loss: Callable[[], float]) -> None:
        """Find out whether the ``loss`` of the network falls by going back."""
        if self.share:
            here = loss()
            self.better = True
            with self.applied(model):
                self.better = loss() < here

    @contextmanager
    def applied(self, model: nn.Module) -> Iterator[None]:
        """Inside, the network as it would be if training ended here; after it, as it was."""
        now = floating(model) if self.better else {}
        self.apply_(model)
        try:
            yield
        finally:
            drawn_back_(model, now, 1.0)

    def apply_(self, model: nn.Module) -> None:
        """Go back, if that is better."""
        if self.better:
            drawn_back_(model, self.tensors, self.share)

    def state(self) -> dict[str, Any]:
        """For a checkpoint."""
        return {"tensors": self.tensors, "better": self.better}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.tensors, self.better = state["tensors"], state["better"]


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

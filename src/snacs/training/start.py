"""The mean of the weights that training began with and of those that it arrived at.

A repaired network and what a short training made of it err in different ways: their mean, weight by
weight, can be better than either (docs/research.md; Wortsman et al., *Robust fine-tuning of
zero-shot models*, 2022, average a network with its fine-tuned self in the same way). A poor start
is nothing to go back to, so the loss on training images is asked each time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torch import nn

from snacs.network.between import drawn_back_, floating


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

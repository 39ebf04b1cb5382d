"""How images and weights lie in memory while training."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn


def channels_last(tensor: Tensor) -> Tensor:
    """A tensor of four dimensions with its channels innermost; others as they are."""
    return tensor.contiguous(memory_format=torch.channels_last) if tensor.ndim == 4 else tensor


@contextmanager
def laid_out(model: nn.Module, *, channels_last: bool) -> Iterator[None]:
    """Weights with the channels innermost inside, as usual outside."""
    if channels_last:
        _lay_out_(model, torch.channels_last)
    try:
        yield
    finally:
        if channels_last:
            _lay_out_(model, torch.contiguous_format)


def _lay_out_(model: nn.Module, layout: torch.memory_format) -> None:
    for tensor in itertools.chain(model.parameters(), model.buffers()):
        if tensor.ndim == 4:
            tensor.data = tensor.data.contiguous(memory_format=layout)

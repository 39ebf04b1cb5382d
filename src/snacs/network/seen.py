"""The modules a trace looks for, and what it notes about each."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm

from snacs.network.sources import Origins, columns_per_channel, segments
from snacs.values import Segment

KINDS: dict[str, type[nn.Module]] = {
    "Conv1d": nn.Conv1d,
    "Conv2d": nn.Conv2d,
    "Conv3d": nn.Conv3d,
    "Linear": nn.Linear,
}
NORMS = (_BatchNorm, _InstanceNorm, nn.GroupNorm, nn.LayerNorm, nn.RMSNorm)
ADDITIONS: frozenset[Any] = frozenset(
    {
        torch.add,
        torch.Tensor.add,
        torch.Tensor.add_,
        torch.Tensor.__add__,
        torch.Tensor.__radd__,
        torch.Tensor.__iadd__,
    }
)
"""Functions that count as the additions numbered by :class:`snacs.values.Sum`."""


def is_addition(func: Callable[..., Any]) -> bool:
    """Whether a function seen by a TorchFunctionMode is one of the numbered additions.

    To meet the same numbers again, count in eval mode and with the mode outermost: a function
    called by another torch function is not seen by either.
    """
    return func in ADDITIONS


def kind_of(module: nn.Module) -> str | None:
    """Conv1d, Conv2d, Conv3d or Linear, also under a parametrization or as a subclass."""
    return next((kind for kind, base in KINDS.items() if isinstance(module, base)), None)


def channel_dim(kind: str, ndim: int) -> int:
    """Which dimension of a layer's input and output holds its channels."""
    return ndim - 1 if kind == "Linear" else ndim - 1 - int(kind[4])


def weight_shape(module: nn.Module) -> tuple[int, ...]:
    """Shape of the weight of a convolution or linear module."""
    return tuple(getattr(module, "weight").shape)  # noqa: B009 - typed as Tensor | Module


@dataclass
class Seen:
    """What the pass showed of one convolution or linear module."""

    name: str
    module: nn.Module
    kind: str
    c_out: int
    columns: list[list[Origins]] = field(default_factory=list)
    outputs: int = 0
    consumers: list[str] = field(default_factory=list)

    @property
    def kernel(self) -> int:
        """Weights per connection."""
        if self.kind != "Linear":
            return math.prod(weight_shape(self.module)[2:])
        repeats = {columns_per_channel(columns) for columns in self.columns}
        return repeats.pop() if len(repeats) == 1 else 1

    @property
    def feeds(self) -> tuple[Segment, ...]:
        step = self.kernel if self.kind == "Linear" else 1
        return merged(segments(columns[::step]) for columns in self.columns)


def merged(parts: Iterable[tuple[Segment, ...]]) -> tuple[Segment, ...]:
    united = {segment for part in parts for segment in part}
    return tuple(sorted(united, key=lambda s: (s.start, s.source, s.first, s.length)))

"""What a network computes, as a list of steps: no layout yet, and nothing compiled.

Steps on images are done by our own kernels, everything else by torch. Tensors between steps have
names; a step says which it reads and which it writes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from snacs.values import FloatArray

Pair = tuple[int, int]


@dataclass(frozen=True)
class Value:
    """A tensor of a step, without the batch: ``channels`` planes of ``height`` × ``width``."""

    name: str
    channels: int
    height: int
    width: int


@dataclass(frozen=True, eq=False, kw_only=True)
class Step:
    """One output from one input; ``other`` is added, then the sum is clipped to [low, high]."""

    layer: str
    x: Value
    out: Value
    other: Value | None = None
    low: float = -math.inf
    high: float = math.inf

    @property
    def reads(self) -> tuple[Value, ...]:
        return (self.x,) if self.other is None else (self.x, self.other)


@dataclass(frozen=True, eq=False, kw_only=True)
class Conv(Step):
    """A convolution or linear layer with what follows it: BatchNorm is in weight and bias.

    ``weight`` has the shape (c_out, c_in / groups, height, width).
    """

    weight: FloatArray
    bias: FloatArray
    stride: Pair = (1, 1)
    padding: Pair = (0, 0)
    dilation: Pair = (1, 1)
    groups: int = 1

    @property
    def kept(self) -> int:
        """Weights other than zero."""
        return int(np.count_nonzero(self.weight))

    @property
    def positions(self) -> int:
        return self.out.height * self.out.width


@dataclass(frozen=True, eq=False, kw_only=True)
class Copy(Step):
    """``scale · x + shift`` by channel, of every ``stride``-th pixel, at channel ``first`` of out.

    With ``pad``, channels that x does not reach are zeros; without it they are another step's.
    """

    scale: FloatArray | None = None
    shift: FloatArray | None = None
    stride: int = 1
    first: int = 0
    pad: bool = True


@dataclass(frozen=True, eq=False, kw_only=True)
class Pool(Step):
    """Maximum or average over windows."""

    kernel: Pair
    stride: Pair
    padding: Pair
    average: bool = False
    count_padding: bool = True


@dataclass(frozen=True, eq=False, kw_only=True)
class Mean(Step):
    """Mean over all pixels of a channel."""


@dataclass(frozen=True, eq=False, kw_only=True)
class TorchStep:
    """A node of the traced graph that torch runs, and why our kernels do not."""

    node: Any
    reason: str


@dataclass(frozen=True, eq=False, kw_only=True)
class Segment:
    """Consecutive steps of our kernels, with the tensors that come in from torch and go out."""

    steps: tuple[Step, ...]
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]


@dataclass(frozen=True, eq=False, kw_only=True)
class Lowered:
    """A network as segments and torch steps, in order.

    ``views`` says of nodes of the graph which value they are, and in which shape by image.
    """

    parts: tuple[Segment | TorchStep, ...]
    views: dict[Any, tuple[Value, tuple[int, ...]]] = field(default_factory=dict)

    @property
    def steps(self) -> tuple[Step, ...]:
        return tuple(s for part in self.parts if isinstance(part, Segment) for s in part.steps)

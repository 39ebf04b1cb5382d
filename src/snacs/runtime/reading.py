"""What is known of a traced network's nodes while they are read, and how to look at them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from torch import Tensor, fx

from snacs.runtime.steps import Pair, Value
from snacs.values import FloatArray

View = tuple[Value, tuple[int, ...]]


class NotOurs(Exception):
    """A node is left to torch, with the reason."""


@dataclass(eq=False)
class Reading:
    """What is known while nodes are read in order: shapes, and which value each node is."""

    module: fx.GraphModule
    shapes: dict[fx.Node, tuple[int, ...]]
    images: int
    dense: frozenset[str]
    views: dict[fx.Node, View] = field(default_factory=dict)

    def place(self, node: fx.Node) -> Value:
        """A value for what a node makes, if it is a batch of images or of vectors."""
        shape = self.shapes.get(node, ())
        if len(shape) not in (2, 4) or shape[0] != self.images or 0 in shape:
            return Value(node.name, 0, 0, 0)
        channels, height, width = (*shape[1:], 1, 1)[:3]
        value = Value(node.name, channels, height, width)
        self.views[node] = (value, shape[1:])
        return value

    def shape_of(self, node: Any) -> tuple[int, ...]:
        """The shape of one image, as the network sees it."""
        return self.views[node][1]

    def image(self, node: Any) -> Value:
        """The value that a node stands for, as planes."""
        if not isinstance(node, fx.Node) or node not in self.views:
            raise NotOurs("its input is no batch of float32 images")
        value, shape = self.views[node]
        if len(shape) == 3 or value.height == value.width == 1:
            return value
        raise NotOurs("its input is flattened")


def argument_of(node: fx.Node, at: int, name: str, default: Any = None) -> Any:
    return node.args[at] if len(node.args) > at else node.kwargs.get(name, default)


def pair_of(value: Any) -> Pair:
    found = tuple(value) if isinstance(value, tuple | list) else (value, value)
    if len(found) == 1:
        found *= 2
    if not all(isinstance(each, int) for each in found):
        raise NotOurs("its sizes are computed at run time")
    return int(found[0]), int(found[1])


def array_of(tensor: Tensor) -> FloatArray:
    return np.ascontiguousarray(tensor.detach().numpy(), np.float32)


def name_of(node: fx.Node) -> str:
    return str(node.target) if node.op == "call_module" else node.name

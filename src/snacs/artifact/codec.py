"""Arguments as JSON and back: numbers, text, nests, slices, types, and results of other nodes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import fx

from snacs.artifact.vocabulary import DTYPES
from snacs.errors import InputError

_DTYPE_NAMES = {dtype: name for name, dtype in DTYPES.items()}
_DEEPEST = 20  # nests of arguments; real ones have two or three levels


class NotStorable(Exception):
    """Something in a network that the format has no word for; the message names it."""


def encode(value: Any) -> Any:
    """A JSON value for one argument; :class:`NotStorable` for what has none."""
    if value is None or isinstance(value, bool | str | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": str(value)}
    if isinstance(value, fx.Node):
        return {"node": value.name}
    if isinstance(value, torch.dtype) and value in _DTYPE_NAMES:
        return {"dtype": _DTYPE_NAMES[value]}
    if isinstance(value, slice):
        return {"slice": [encode(value.start), encode(value.stop), encode(value.step)]}
    if value is Ellipsis:
        return {"ellipsis": True}
    if isinstance(value, tuple):
        return {"tuple": [encode(item) for item in value]}
    if isinstance(value, list):
        return [encode(item) for item in value]
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {"dict": {key: encode(item) for key, item in value.items()}}
    raise NotStorable(f"an argument of type {type(value).__name__}")


class Ref:
    """The result of another node, by its number."""

    __slots__ = ("index",)

    def __init__(self, index: int) -> None:
        self.index = index


def decode(value: Any, nodes: Mapping[str, int], depth: int = 0) -> Any:
    """An argument with :class:`Ref` for other nodes; an error for anything unknown."""
    if depth > _DEEPEST:
        raise InputError("its arguments are nested too deeply")
    if value is None or isinstance(value, bool | str | int | float):
        return value
    if isinstance(value, list):
        return [decode(item, nodes, depth + 1) for item in value]
    if not isinstance(value, dict) or len(value) != 1:
        raise InputError(f"it holds an unknown argument {str(value)[:60]!r}")
    ((kind, inner),) = value.items()
    if kind == "node":
        if not isinstance(inner, str) or inner not in nodes:
            raise InputError(f"its graph refers to a node {str(inner)[:60]!r} that is not there")
        return Ref(nodes[inner])
    if kind == "float" and inner in ("inf", "-inf", "nan"):
        return float(inner)
    if kind == "dtype" and inner in DTYPES:
        return DTYPES[inner]
    if kind == "ellipsis":
        return Ellipsis
    if kind == "slice" and isinstance(inner, list) and len(inner) == 3:
        return slice(*(decode(item, nodes, depth + 1) for item in inner))
    if kind == "tuple" and isinstance(inner, list):
        return tuple(decode(item, nodes, depth + 1) for item in inner)
    if kind == "dict" and isinstance(inner, dict):
        return {key: decode(item, nodes, depth + 1) for key, item in inner.items()}
    raise InputError(f"it holds an unknown argument {str(value)[:60]!r}")


def refs_in(value: Any) -> set[int]:
    """The numbers of all nodes that an argument needs."""
    found: set[int] = set()
    fill(value, lambda index: found.add(index))
    return found


def fill(value: Any, result: Callable[[int], Any]) -> Any:
    """The argument with results in place of references."""
    if isinstance(value, Ref):
        return result(value.index)
    if isinstance(value, tuple):
        return tuple(fill(item, result) for item in value)
    if isinstance(value, list):
        return [fill(item, result) for item in value]
    if isinstance(value, dict):
        return {key: fill(item, result) for key, item in value.items()}
    if isinstance(value, slice):
        return slice(*(fill(part, result) for part in (value.start, value.stop, value.step)))
    return value

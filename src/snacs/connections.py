"""What limits and selection agree on: the order in which connections go, and how many may.

A connection's flat index is ``i * c_in + j``. The order is by (score, index), so the connections
that go at a low level are a prefix of those that go at a higher one: levels are nested.
"""

from __future__ import annotations

import numpy as np

from snacs.errors import InputError
from snacs.values import BoolArray, FloatArray, IntArray, Layer

_ROUNDING = 1e-6  # of a connection: 0.29 · 100 is 28.999…, and means 29


def most_prunable(connections: int) -> int:
    """The floor: at least 1 % of a layer's connections, and at least one, stay.

    >>> most_prunable(1000), most_prunable(10), most_prunable(1)
    (990, 9, 0)
    """
    return connections * 99 // 100


def count_at(limit: float, connections: int) -> int:
    """Connections that go at a limit (γ, a fraction of all of the layer's): rounded down.

    >>> count_at(0.29, 100), count_at(0.999, 10)
    (29, 9)
    """
    return int(np.floor(limit * connections + _ROUNDING))


def prune_order(scores: FloatArray, protected: BoolArray | None = None) -> IntArray:
    """Flat indices of the connections outside protected rows, lowest (score, index) first.

    >>> prune_order(np.array([[0.2, 0.1], [0.1, 0.0]]), np.array([False, False]))
    array([3, 1, 2, 0])
    >>> prune_order(np.array([[0.2, 0.1], [0.1, 0.0]]), np.array([False, True]))
    array([1, 0])
    """
    flat = np.asarray(scores).ravel()
    if protected is None:
        return np.argsort(flat, kind="stable")
    free = np.flatnonzero(np.repeat(~np.asarray(protected, dtype=bool), scores.shape[1]))
    return free[np.argsort(flat[free], kind="stable")]


def check_scores(layer: Layer, scores: FloatArray, protected: BoolArray | None = None) -> None:
    """Raise an :class:`InputError` that names the layer if its scores cannot be used."""
    expected = (layer.c_out, layer.c_in)
    if np.shape(scores) != expected:
        raise InputError(
            f"The scores of layer {layer.name!r} must have the shape (c_out, c_in) = {expected}. "
            f"Got {np.shape(scores)}."
        )
    if not np.isfinite(scores).all():
        raise InputError(
            f"The scores of layer {layer.name!r} hold NaN or infinite values. Check its weights "
            "and activations, or leave the layer out with 'ignore'."
        )
    if protected is not None and np.shape(protected) != (layer.c_out,):
        raise InputError(
            f"The protected rows of layer {layer.name!r} must be one bool per filter, shape "
            f"({layer.c_out},). Got {np.shape(protected)}."
        )

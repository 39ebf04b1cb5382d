"""What a network costs, dense and pruned: weights, multiply-adds, bytes; and how well it does.

Conventions: one multiply-add is one MAC, per image. Biases and everything that is neither a
convolution nor linear are not counted. CSR has a row per filter and c_in · kernel columns.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from torch import nn

from snacs.errors import InputError
from snacs.network.batches import Forward, evaluating, labels_of, logits_of, move, run
from snacs.network.shrink import Shrunk, per_connection, shrink
from snacs.values import BoolArray, Layer, Structure

_VALUE = 4  # bytes of a float32
_INDEX = 4  # bytes of an int32: columns and row pointers


@dataclass(frozen=True)
class LayerCost:
    """One layer. ``macs_compacted`` is what a dense library computes after compaction."""

    name: str
    weights: int
    weights_kept: int
    macs: int
    macs_kept: int
    macs_compacted: int
    csr_bytes: int
    csr_bytes_narrow: int
    index_bytes: int
    """Bytes per column index in ``csr_bytes_narrow``: 1, 2 or 4."""
    filters: int
    filters_left: int
    """Filters after compaction: what is dead, or read by nobody, is gone."""

    @property
    def pruned(self) -> float:
        """Fraction of the weights that are gone."""
        return 1.0 - self.weights_kept / self.weights

    @property
    def dense_bytes(self) -> int:
        return self.weights * _VALUE


@dataclass(frozen=True)
class Cost:
    """The whole network: rows per layer, and totals of all of them."""

    layers: tuple[LayerCost, ...]

    def __getitem__(self, name: str) -> LayerCost:
        for row in self.layers:
            if row.name == name:
                return row
        raise KeyError(name)

    @property
    def weights(self) -> int:
        return sum(row.weights for row in self.layers)

    @property
    def weights_kept(self) -> int:
        return sum(row.weights_kept for row in self.layers)

    @property
    def pruned(self) -> float:
        """Fraction of all convolution and linear weights that are gone."""
        return 1.0 - self.weights_kept / self.weights

    @property
    def macs(self) -> int:
        return sum(row.macs for row in self.layers)

    @property
    def macs_kept(self) -> int:
        return sum(row.macs_kept for row in self.layers)

    @property
    def macs_compacted(self) -> int:
        return sum(row.macs_compacted for row in self.layers)

    @property
    def csr_bytes(self) -> int:
        return sum(row.csr_bytes for row in self.layers)

    @property
    def csr_bytes_narrow(self) -> int:
        return sum(row.csr_bytes_narrow for row in self.layers)

    @property
    def dense_bytes(self) -> int:
        return sum(row.dense_bytes for row in self.layers)

    @property
    def index_bytes(self) -> tuple[int, ...]:
        """The widths of column indices that occur, narrow first."""
        return tuple(sorted({row.index_bytes for row in self.layers}))


class Accuracy(NamedTuple):
    """Fraction of n images that are right, with its standard error √(p(1 − p)/n)."""

    fraction: float
    n: int
    error: float


def cost(structure: Structure, keep: Mapping[str, BoolArray] | None = None) -> Cost:
    """Count a network with masks ``keep`` by layer name; layers without one are dense."""
    masks = check_masks(structure, keep or {})
    left = shrink(structure, masks)
    return Cost(tuple(_row(layer, masks.get(layer.name), left) for layer in structure.layers))


def check_masks(structure: Structure, keep: Mapping[str, BoolArray]) -> dict[str, BoolArray]:
    """The masks as bool arrays; an error names a layer that does not exist or does not fit."""
    layers = {layer.name: layer for layer in structure.layers}
    masks = {}
    for name, mask in keep.items():
        if name not in layers:
            raise InputError(f"A mask is given for {name!r}, which is no layer of this network.")
        expected = (layers[name].c_out, layers[name].c_in)
        if np.shape(mask) != expected:
            raise InputError(
                f"The mask of layer {name!r} must have the shape (c_out, c_in) = {expected}. "
                f"Got {np.shape(mask)}."
            )
        masks[name] = np.asarray(mask, dtype=bool)
    return masks


def csr_bytes(rows: int, columns: int, values: int, *, narrow: bool = False) -> int:
    """Bytes of a CSR matrix: float32 values, a column index each, and int32 row pointers.

    >>> csr_bytes(2, 300, 10)  # 10·4 + 10·4 + 3·4
    92
    >>> csr_bytes(2, 300, 10, narrow=True)  # 10·4 + 10·2 + 3·4
    72
    """
    width = index_width(columns) if narrow else _INDEX
    return values * (_VALUE + width) + (rows + 1) * _INDEX


def index_width(columns: int) -> int:
    """Bytes of the narrowest unsigned integer that can name every column."""
    return 1 if columns <= 2**8 else 2 if columns <= 2**16 else 4


def accuracy(
    model: nn.Module,
    images: Iterable[Any],
    *,
    forward: Forward | None = None,
    progress: Callable[[int], None] | None = None,
) -> Accuracy:
    """Top-1 accuracy in eval mode over all labelled batches; ``progress`` gets the images so far.

    A row of scores with NaN in it counts as wrong.
    """
    right = seen = 0
    with evaluating(model):
        for batch in images:
            labels = labels_of(batch)
            if labels is None:
                raise InputError("Accuracy needs labels: give (x, y) batches.")
            logits = logits_of(run(model, move(batch, model), forward)).float().cpu()
            hits = (logits.argmax(dim=1) == labels.cpu()) & ~logits.isnan().any(dim=1)
            right += int(hits.sum())
            seen += len(labels)
            if progress is not None:
                progress(seen)
    if not seen:
        raise InputError("There are no images to measure accuracy on.")
    fraction = right / seen
    return Accuracy(fraction, seen, math.sqrt(fraction * (1 - fraction) / seen))


def _row(layer: Layer, mask: BoolArray | None, left: Shrunk) -> LayerCost:
    kept = layer.connections if mask is None else int(mask.sum())
    values, columns = kept * layer.kernel, layer.c_in * layer.kernel
    filters, channels = left.filters[layer.name], left.channels[layer.name]
    # Each filter of a grouped convolution reads the channels of its own group.
    pairs = filters[:, None] & per_connection(layer, channels)
    return LayerCost(
        name=layer.name,
        weights=layer.weights,
        weights_kept=values,
        macs=layer.macs,
        macs_kept=values * layer.positions,
        macs_compacted=int(pairs.sum()) * layer.kernel * layer.positions,
        csr_bytes=csr_bytes(layer.c_out, columns, values),
        csr_bytes_narrow=csr_bytes(layer.c_out, columns, values, narrow=True),
        index_bytes=index_width(columns),
        filters=layer.c_out,
        filters_left=int(filters.sum()),
    )

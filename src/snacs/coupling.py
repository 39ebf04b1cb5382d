"""Both sides of a filter chosen together.

A filter that hardly anybody reads any more is not worth its inputs, and one that has lost most of
its inputs is hardly worth reading. Scores look at one layer and know nothing of this. Here every
score is multiplied by what is left on the other side of its filters, to a power, layer after layer
until the masks settle. The larger the power, the more filters die on both sides: at the same number
of connections more of the network goes for good when it is compacted.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from snacs.connections import check_scores, prune_order
from snacs.streams import streams
from snacs.values import BoolArray, FloatArray, IntArray, Layer, Structure

ROUNDS = 20
"""Over all layers, at most; ResNet56 settles within 16."""


def couple(
    structure: Structure,
    scores: Mapping[str, FloatArray],
    counts: Mapping[str, int],
    protected: Mapping[str, BoolArray],
    *,
    power: float,
    squared: bool = False,
) -> dict[str, FloatArray]:
    """Scores of every prunable layer that know what the others keep.

    Parameters
    ----------
    scores : (c_out, c_in) by layer; below 0 counts as 0.
    counts : connections that go, by layer.
    protected : (c_out,) filters by layer of which nothing goes.
    power : 0 changes nothing.
    squared : take squares first, so that magnitudes, too, are in the unit of a variance.

    Notes
    -----
    What is left of a filter's readers is the mean over all layers that read it. Layers that are not
    pruned and filters that meet others in a residual sum or cannot be removed count as whole.
    (Coupling residual streams too was measured, and did harm: docs/research.md.)
    """
    if not power:
        return dict(scores)
    for layer in structure.prunable:
        check_scores(layer, scores[layer.name], protected.get(layer.name))
    values = {
        name: np.maximum(np.asarray(found, dtype=np.float64), 0.0) ** (2 if squared else 1)
        for name, found in scores.items()
    }
    coupled = dict(values)
    left = _Left(structure)
    keep: dict[str, BoolArray] = {}
    for layer in structure.prunable:
        keep[layer.name] = _kept(values[layer.name], layer, counts, protected)
        left.note(layer, values[layer.name], keep[layer.name])
    for _ in range(ROUNDS):
        settled = True
        for layer in structure.prunable:
            coupled[layer.name] = values[layer.name] * left.around(layer) ** power
            mask = _kept(coupled[layer.name], layer, counts, protected)
            if (mask != keep[layer.name]).any():
                settled, keep[layer.name] = False, mask
                left.note(layer, values[layer.name], mask)
        if settled:
            break
    return coupled


class _Left:
    """What is left of every filter on both sides: of its own row, and of the columns reading it."""

    def __init__(self, structure: Structure) -> None:
        free = (stream for stream in streams(structure) if stream.kept_because is None)
        found = [stream for stream in free if len(stream.members) == 1]
        self._nobody = len(found)  # stands for all that counts as whole
        self._writes: dict[str, IntArray] = {}
        self._reads: dict[str, IntArray] = {}
        for layer in structure:
            self._writes[layer.name] = np.full(layer.c_out, self._nobody)
            self._reads[layer.name] = np.full(layer.channels, self._nobody)
        for index, stream in enumerate(found):
            for name, row in stream.members:
                self._writes[name][row] = index
            for name, channel in stream.readers:
                self._reads[name][channel] = index
        self._rows: dict[str, FloatArray] = {n: np.ones(len(w)) for n, w in self._writes.items()}
        self._columns: dict[str, FloatArray] = {n: np.ones(len(r)) for n, r in self._reads.items()}

    def note(self, layer: Layer, values: FloatArray, keep: BoolArray) -> None:
        """A layer has a new mask."""
        self._rows[layer.name] = _share((values * keep).sum(axis=1), values.sum(axis=1))
        channels = layer.channel_of().ravel()
        kept, whole = (
            np.bincount(channels, weights=part.ravel(), minlength=layer.channels).astype(np.float64)
            for part in (values * keep, values)
        )
        self._columns[layer.name] = _share(kept, whole)

    def around(self, layer: Layer) -> FloatArray:
        """(c_out, c_in): what is left of the filter's readers times of the channel's writers."""
        read = self._mean(self._reads, self._columns)
        written = self._mean(self._writes, self._rows)
        channels = self._reads[layer.name][layer.channel_of()]
        return np.asarray(read[self._writes[layer.name]][:, None] * written[channels])

    def _mean(self, places: Mapping[str, IntArray], shares: Mapping[str, FloatArray]) -> FloatArray:
        """Per filter, over all layers; what nobody reads counts as whole."""
        where = np.concatenate(list(places.values()))
        what = np.concatenate([shares[name] for name in places])
        total, count = (
            np.bincount(where, weights=part, minlength=self._nobody + 1).astype(np.float64)
            for part in (what, np.ones_like(what))
        )
        found = _share(total, count)
        found[self._nobody] = 1.0
        return found


def _share(part: FloatArray, whole: FloatArray) -> FloatArray:
    """A fraction; of nothing, all is left."""
    return np.divide(part, whole, out=np.ones_like(part, dtype=np.float64), where=whole > 0)


def _kept(
    values: FloatArray, layer: Layer, counts: Mapping[str, int], protected: Mapping[str, BoolArray]
) -> BoolArray:
    keep = np.ones(layer.connections, dtype=bool)
    order = prune_order(values, protected.get(layer.name))
    keep[order[: counts.get(layer.name, 0)]] = False
    return keep.reshape(values.shape)

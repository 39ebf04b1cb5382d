"""Which filters and channels a compacted network can do without: a pure calculation on masks.

A filter can be taken out if its whole *stream* can: all filters that are added into the same
channels (a residual sum), with all columns that read them. A stream goes if

* every filter in it is silent (all its kernels pruned, and its bias or BatchNorm masked with them)
  and nothing else reaches its channels, or
* nobody reads it: no kept kernel of a remaining filter stands in its columns, and it does not reach
  the network's output.

Taking out a stream can free others, so this runs until nothing changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from snacs.values import MIXED, NETWORK_INPUT, BoolArray, IntArray, Layer, Segment, Structure


@dataclass(frozen=True, eq=False)
class Shrunk:
    """What is left: per layer its (c_out,) filters and its (channels,) input channels."""

    filters: dict[str, BoolArray]
    channels: dict[str, BoolArray]


def shrink(structure: Structure, keep: Mapping[str, BoolArray]) -> Shrunk:
    """Follow ``structure``'s feeds and say what remains under the masks ``keep``."""
    layers = structure.layers
    stream = _streams(structure)
    pinned = _pinned(structure, stream)
    mask = {
        layer.name: np.array(keep.get(layer.name, np.ones((layer.c_out, layer.c_in), bool)))
        for layer in layers
    }
    normed = {segment.source for norm in structure.norms for segment in norm.feeds}
    gone = np.zeros(len(pinned), dtype=bool)
    while True:
        heard, loud = np.zeros_like(gone), np.zeros_like(gone)
        for layer in layers:
            alive = mask[layer.name] & ~per_connection(layer, _columns(layer, gone, stream))
            rows = ~gone[stream.of(layer)]
            # A filter that lost its inputs, not its kernels, still gives its bias, or what a
            # norm makes of 0: only where there is neither is it silent.
            empty = not layer.has_bias and layer.name not in normed
            speaks = alive.any(axis=1) if empty else mask[layer.name].any(axis=1)
            loud[stream.of(layer)[speaks & rows]] = True
            if not _depthwise(layer):  # which shares the stream that it reads
                heard[stream.into(layer, _read(layer, alive & rows[:, None]))] = True
        more = ~pinned & ~gone & ~(heard & loud)
        if not more.any():
            break
        gone |= more
    return Shrunk(
        filters={layer.name: ~gone[stream.of(layer)] for layer in layers},
        channels={layer.name: ~_columns(layer, gone, stream) for layer in layers},
    )


def per_connection(layer: Layer, channels: BoolArray) -> BoolArray:
    """What holds of (channels,) as it meets each connection: broadcasts to (c_out, c_in)."""
    # The full table of a wide layer is large, and only groups need it.
    return channels[None, :] if layer.groups == 1 else channels[layer.channel_of()]


def _read(layer: Layer, alive: BoolArray) -> BoolArray:
    if layer.groups == 1:
        found: BoolArray = np.logical_or.reduce(alive, axis=0)
        return found
    read = np.zeros(layer.channels, dtype=bool)
    read[layer.channel_of()[alive]] = True
    return read


@dataclass(frozen=True, eq=False)
class _Streams:
    """The stream number of every filter of every layer."""

    first: dict[str, int]
    number: IntArray

    def of(self, layer: Layer) -> IntArray:
        return self.number[self.first[layer.name] :][: layer.c_out]

    def through(self, segment: Segment) -> IntArray:
        begin = self.first[segment.source] + segment.first
        return self.number[begin : begin + segment.length]

    def into(self, layer: Layer, read: BoolArray) -> IntArray:
        """Streams of the channels that are read."""
        parts = [self.through(s)[read[s.start : s.start + s.length]] for s in _known(layer.feeds)]
        return np.concatenate([np.empty(0, dtype=np.int64), *parts])


def _known(feeds: Iterable[Segment]) -> list[Segment]:
    return [segment for segment in feeds if segment.source not in (MIXED, NETWORK_INPUT)]


def _columns(layer: Layer, gone: BoolArray, stream: _Streams) -> BoolArray:
    """Which input channels of a layer are gone: all filters in a channel are in one stream."""
    found = np.zeros(layer.channels, dtype=bool)
    for segment in _known(layer.feeds):
        found[segment.start : segment.start + segment.length] |= gone[stream.through(segment)]
    return found


def _streams(structure: Structure) -> _Streams:
    """Join filters that meet in a channel, until no number changes."""
    first, total = {}, 0
    for layer in structure.layers:
        first[layer.name] = total
        total += layer.c_out
    pairs = []
    for feeds, width in _readers(structure):
        owner = np.full(width, -1)
        for segment in _known(feeds):
            places = np.arange(segment.start, segment.start + segment.length)
            filters = first[segment.source] + segment.first + np.arange(segment.length)
            met = owner[places] >= 0
            pairs.append(np.stack([owner[places][met], filters[met]]))
            owner[places[~met]] = filters[~met]
    for layer in structure.layers:
        if _depthwise(layer):
            for segment in _known(layer.feeds):
                reads = first[segment.source] + segment.first + np.arange(segment.length)
                mine = first[layer.name] + segment.start + np.arange(segment.length)
                pairs.append(np.stack([reads, mine]))
    number = np.arange(total)
    left, right = np.concatenate([np.empty((2, 0), dtype=np.int64), *pairs], axis=1)
    while True:
        lowest = np.minimum(number[left], number[right])
        new = number.copy()
        np.minimum.at(new, left, lowest)
        np.minimum.at(new, right, lowest)
        new = new[new]
        if (new == number).all():
            return _Streams(first, number)
        number = new


def _readers(structure: Structure) -> list[tuple[tuple[Segment, ...], int]]:
    outputs = max((s.start + s.length for s in structure.outputs), default=0)
    return [
        *((layer.feeds, layer.channels) for layer in structure.layers),
        *((norm.feeds, norm.channels) for norm in structure.norms),
        (structure.outputs, outputs),
    ]


def _depthwise(layer: Layer) -> bool:
    return layer.groups > 1 and layer.c_in == 1 and layer.c_out == layer.groups


def _pinned(structure: Structure, stream: _Streams) -> BoolArray:
    """Streams that must stay whatever the masks say."""
    pinned = np.zeros(len(stream.number), dtype=bool)
    layers = {layer.name: layer for layer in structure.layers}
    for segment in _known(structure.outputs):
        pinned[stream.through(segment)] = True
    for layer in structure.layers:
        grouped = layer.groups > 1 and not _depthwise(layer)
        if grouped:  # groups must stay equally wide
            pinned[stream.of(layer)] = True
        for segment in _known(layer.feeds):
            # What shares a channel with the input or with something unknown, or has been read
            # by a norm over all channels, cannot go alone.
            if grouped or _overlaps(segment, layer.feeds):
                pinned[stream.through(segment)] = True
        for name in layer.consumers:
            reader = layers[name]
            exact = any(segment.source == layer.name for segment in reader.feeds)
            if not exact or any(segment.source == MIXED for segment in reader.feeds):
                pinned[stream.of(layer)] = True
    return pinned


def _overlaps(segment: Segment, feeds: Iterable[Segment]) -> bool:
    return any(
        other.source in (MIXED, NETWORK_INPUT)
        and other.start < segment.start + segment.length
        and segment.start < other.start + other.length
        for other in feeds
    )

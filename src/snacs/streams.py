"""Streams: filters that meet in the same channel, and so can only be removed together.

A residual sum adds filter i of one layer to filter i of another; whoever reads that channel reads
both. Removing one alone frees nothing. A stream is the set of all filters that are joined by such
meetings, with the channels that carry it. Filter selection removes whole streams, and compaction
can cut exactly those.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from snacs.values import (
    MIXED,
    NETWORK_INPUT,
    BoolArray,
    FloatArray,
    IntArray,
    Layer,
    Segment,
    Structure,
)


@dataclass(frozen=True)
class Stream:
    """Filters that meet, as (layer, filter), and who reads them, as (layer, input channel).

    ``kept_because`` says why the stream cannot be removed; None if it can.
    """

    members: tuple[tuple[str, int], ...]
    readers: tuple[tuple[str, int], ...]
    kept_because: str | None = None


def streams(structure: Structure) -> tuple[Stream, ...]:
    """Every filter of the structure in exactly one stream, in order of its first member.

    Filters are joined where they meet in a channel of a layer's input, a norm's input or the
    network's output. A stream is kept if it holds a filter of a kept layer, shares a channel with
    the network's input or with something beyond tracing, or is part of the network's output.
    """
    offsets = _offsets(structure)
    parent = np.arange(sum(layer.c_out for layer in structure))
    reasons: dict[int, str] = {}
    for layer in structure:
        if layer.kept_because is not None:
            reason = f"layer {layer.name!r} is kept: {layer.kept_because}"
            reasons.update((offsets[layer.name] + i, reason) for i in range(layer.c_out))
    inputs = [layer.feeds for layer in structure] + [norm.feeds for norm in structure.norms]
    for feeds in (*inputs, structure.outputs):
        _join_channels(feeds, offsets, parent, reasons)
    for segment in structure.outputs:
        if segment.source in offsets:
            start = offsets[segment.source] + segment.first
            for filter_id in range(start, start + segment.length):
                reasons.setdefault(filter_id, "it is part of the network's output")
    return _collect(structure, offsets, parent, reasons)


def filter_scores(structure: Structure, scores: Mapping[str, FloatArray]) -> dict[str, FloatArray]:
    """Scores (c_out, c_in) in which all connections of a filter carry their stream's score.

    A filter's score is the mean of its connections: within a layer the same order as their sum,
    and between layers of different width a fair one. A stream's is the mean over its members with
    scores, so that long streams are neither favoured nor punished. With these scores, curves and
    limits speak about whole filters.
    """
    rows = {
        name: np.asarray(values, dtype=np.float64).mean(axis=1) for name, values in scores.items()
    }
    shared = {name: values.copy() for name, values in rows.items()}
    for stream in streams(structure):
        scored = [(name, i) for name, i in stream.members if name in rows]
        if len(scored) > 1:
            mean = float(np.mean([rows[name][i] for name, i in scored]))
            for name, i in scored:
                shared[name][i] = mean
    return {
        name: np.repeat(values[:, None], np.shape(scores[name])[1], axis=1)
        for name, values in shared.items()
    }


def live_channels(layer: Layer, live: Mapping[str, BoolArray]) -> BoolArray:
    """(channels,) True where an input channel carries at least one live filter.

    Channels from the network's input, from beyond tracing, or from a source that is not in
    ``live`` count as live; so does everything if the layer's feeds are unknown.
    """
    return segments_live(layer.feeds, layer.channels, live)


def segments_live(
    feeds: tuple[Segment, ...], channels: int, live: Mapping[str, BoolArray]
) -> BoolArray:
    """As :func:`live_channels`, for any tensor."""
    if not feeds:
        return np.ones(channels, dtype=bool)
    result = np.zeros(channels, dtype=bool)
    for segment in feeds:
        place = slice(segment.start, segment.start + segment.length)
        source = live.get(segment.source)
        if source is None:
            result[place] = True
        else:
            result[place] |= source[segment.first : segment.first + segment.length]
    return result


def _offsets(structure: Structure) -> dict[str, int]:
    starts = np.cumsum([0, *(layer.c_out for layer in structure)])
    return {layer.name: int(start) for layer, start in zip(structure, starts, strict=False)}


def _join_channels(
    feeds: Iterable[Segment], offsets: Mapping[str, int], parent: IntArray, reasons: dict[int, str]
) -> None:
    """Join all filters that share a channel; note why a channel cannot die."""
    holders: dict[int, int] = {}
    fixed: dict[int, str] = {}
    for segment in feeds:
        for step in range(segment.length):
            channel = segment.start + step
            if segment.source not in offsets:
                fixed[channel] = segment.source
                continue
            filter_id = offsets[segment.source] + segment.first + step
            other = holders.setdefault(channel, filter_id)
            _join(parent, other, filter_id)
    origin = {NETWORK_INPUT: "the network's input", MIXED: "something beyond tracing"}
    for channel, source in fixed.items():
        if channel in holders:
            what = origin.get(source, f"the output of {source!r}")
            reasons.setdefault(holders[channel], f"it shares a channel with {what}")


def _collect(
    structure: Structure, offsets: Mapping[str, int], parent: IntArray, reasons: dict[int, str]
) -> tuple[Stream, ...]:
    members: dict[int, list[tuple[str, int]]] = {}
    readers: dict[int, set[tuple[str, int]]] = {}
    kept: dict[int, str] = {}
    for layer in structure:
        for i in range(layer.c_out):
            root = _root(parent, offsets[layer.name] + i)
            members.setdefault(root, []).append((layer.name, i))
        for segment in layer.feeds:
            if segment.source in offsets:
                for step in range(segment.length):
                    root = _root(parent, offsets[segment.source] + segment.first + step)
                    readers.setdefault(root, set()).add((layer.name, segment.start + step))
    for filter_id in sorted(reasons):
        kept.setdefault(_root(parent, filter_id), reasons[filter_id])
    place = {layer.name: index for index, layer in enumerate(structure)}
    return tuple(
        Stream(
            tuple(filters),
            tuple(sorted(readers.get(root, ()), key=lambda reader: (place[reader[0]], reader[1]))),
            kept.get(root),
        )
        for root, filters in members.items()
    )


def _root(parent: IntArray, node: int) -> int:
    while parent[node] != node:
        parent[node] = parent[parent[node]]
        node = int(parent[node])
    return node


def _join(parent: IntArray, one: int, other: int) -> None:
    one, other = _root(parent, one), _root(parent, other)
    parent[max(one, other)] = min(one, other)

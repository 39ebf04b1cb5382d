"""Allocation by whole filters: coupled streams go together.

Streams (:mod:`snacs.streams`) go in one fixed order, so what goes for a low target also goes for
a higher one. The order comes from the same ladders as for connections: a stream may go from the
step on at which *every* layer it runs through may lose that many of its filters, lower scores
first. Removing a stream takes the rows of its filters and, in prunable layers that read it, the
columns: the channel is silent, so they carry nothing, and counting them is what the masks and a
compacted network really save. Columns of kept layers are not touched and not counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from snacs.config import Config, Goal
from snacs.connections import most_prunable
from snacs.limits.ladders import Ladder, ScoreThreshold, last_step, make_ladder
from snacs.limits.task import Allocation, Task, check_all, make_task, needed, unit_of, unreachable
from snacs.streams import Stream, filter_scores, live_channels, streams
from snacs.values import BoolArray, Curve, FloatArray, Layer, Structure

# Layers of at least this many filters lose them in chunks, in no fewer than this many steps.
WIDE = 64
CHUNKS = 8


def allocate_filters(
    structure: Structure,
    scores: Mapping[str, FloatArray],
    curves: Mapping[str, Curve],
    protected: Mapping[str, BoolArray],
    *,
    goal: Goal,
    config: Config,
) -> Allocation:
    """As :func:`snacs.limits.allocate.allocate`, by whole streams of filters.

    A stream with a protected filter is kept, like those that :func:`snacs.streams.streams` keeps.
    Wide layers lose filters in chunks, so that ``config.multiple`` divides what they keep. The
    target is met by the first chunk that reaches it, so it is exceeded by less than one. A stream
    whose removal would leave a prunable layer with less than 1 % of its connections, one of its
    filters without input, or a kept layer without any, is passed over.

    Curves should be measured with :func:`snacs.streams.filter_scores`, so that they too speak of
    whole filters.
    """
    check_all(structure, scores, protected)
    shared = filter_scores(
        structure, {layer.name: scores[layer.name] for layer in structure.prunable}
    )
    flow = [_hold(stream, protected) for stream in streams(structure)]
    fixed = _fixed_rows(structure, flow)
    task = _whole_rows(make_task(structure, shared, fixed, goal.budget))
    ladder = make_ladder(task, curves, config)
    holder = ScoreThreshold(task, config)
    last = last_step(ladder, goal)
    wanted = None if goal.target is None else needed(task, goal.target)
    body = Body(structure, goal.budget)
    step = 0
    queue = _queue(task, ladder, holder, flow, shared)
    for first_step, chunk in _chunks(queue, structure, config.multiple):
        if first_step > last or (wanted is not None and body.gone >= wanted):
            break
        removed = [body.remove(stream) for stream in chunk]
        step = first_step if any(removed) else step
    if wanted is not None and body.gone < wanted:
        why = ("filters go as whole streams, none of which may leave a layer without input",)
        raise unreachable(task, goal, config, body.gone / task.total, why)
    step = last if wanted is None else step
    return Allocation(
        counts={name: body.masked(name) for name in body.rows},
        limits={name: float(1.0 - rows.mean()) for name, rows in body.rows.items()},
        threshold=ladder.threshold(step),
        delta=holder.in_force(ladder, step),
        reached=body.gone / task.total,
        removed={name: ~rows for name, rows in body.rows.items()},
    )


class Body:
    """The layers while streams leave them: live rows, live channels, what is gone.

    Floors: a prunable layer keeps 1 % of its connections, and each of its filters that stays
    keeps a live input; a kept layer keeps a live input.
    """

    def __init__(self, structure: Structure, budget: str) -> None:
        self._layers = {layer.name: layer for layer in structure}
        self.rows = {layer.name: np.ones(layer.c_out, bool) for layer in structure.prunable}
        self._channels = {layer.name: np.ones(layer.channels, bool) for layer in structure}
        # Padded channels carry zeros: they are there, but nothing comes through them.
        self._padded = {layer.name: ~live_channels(layer, {}) for layer in structure}
        self._units = {layer.name: unit_of(layer, budget) for layer in structure}
        self._kept = {layer.name: layer.connections for layer in structure}
        self.gone = 0

    def masked(self, name: str) -> int:
        """Connections of a layer that are gone: dead rows and dead columns."""
        return self._layers[name].connections - self._kept[name]

    def remove(self, stream: Stream) -> bool:
        """Remove a stream, unless that breaks a floor; whether it was removed."""
        touched = {name for name, _ in (*stream.members, *stream.readers)}
        self._set(stream, live=False)
        kept = {name: self._count(self._layers[name]) for name in touched}
        if min(kept.values()) < 0:
            self._set(stream, live=True)
            return False
        for name, left in kept.items():
            self.gone += (self._kept[name] - left) * self._units[name]
            self._kept[name] = left
        return True

    def _set(self, stream: Stream, *, live: bool) -> None:
        for name, index in stream.members:
            self.rows[name][index] = live
        for name, channel in stream.readers:
            self._channels[name][channel] = live

    def _count(self, layer: Layer) -> int:
        """Kept connections of a layer; −1 if they are below a floor."""
        name = layer.name
        reached = self._channels[name] & ~self._padded[name]
        if not layer.prunable:
            return layer.connections if reached.any() else -1
        groups = (layer.groups, -1)
        rows = self.rows[name].reshape(groups).sum(axis=1)
        starved = ~reached.reshape(groups).any(axis=1) & ~self._padded[name].reshape(groups).all(1)
        left = int(np.dot(rows, self._channels[name].reshape(groups).sum(axis=1)))
        floor = layer.connections - most_prunable(layer.connections)
        return -1 if left < floor or (starved & (rows > 0)).any() else left


def _hold(stream: Stream, protected: Mapping[str, BoolArray]) -> Stream:
    """The stream, kept if one of its filters is protected."""
    if stream.kept_because is None and any(
        name in protected and protected[name][index] for name, index in stream.members
    ):
        return replace(stream, kept_because="one of its filters is protected")
    return stream


def _fixed_rows(structure: Structure, flow: list[Stream]) -> dict[str, BoolArray]:
    """(c_out,) filters of prunable layers whose stream is kept."""
    fixed = {layer.name: np.zeros(layer.c_out, dtype=bool) for layer in structure.prunable}
    for stream in flow:
        if stream.kept_because is not None:
            for name, index in stream.members:
                if name in fixed:
                    fixed[name][index] = True
    return fixed


def _whole_rows(task: Task) -> Task:
    """Caps rounded down to whole filters."""
    widths = np.array([layer.c_in for layer in task.layers], dtype=np.int64)
    return replace(task, caps=task.caps // widths * widths)


def _queue(
    task: Task,
    ladder: Ladder,
    holder: ScoreThreshold,
    flow: list[Stream],
    scores: Mapping[str, FloatArray],
) -> list[tuple[int, Stream]]:
    """Streams that may go, with the ladder step from which on they may, in the order they go."""
    ranked = sorted(
        (float(scores[stream.members[0][0]][stream.members[0][1], 0]), place, stream)
        for place, stream in enumerate(flow)
        if stream.kept_because is None
    )
    index = {layer.name: place for place, layer in enumerate(task.layers)}
    taken = dict.fromkeys(index, 0)
    entries: list[tuple[int, float, int, Stream]] = []
    for score, place, stream in ranked:
        first = holder.first_step(ladder, score)
        for name, _ in stream.members:
            taken[name] += task.layers[index[name]].c_in
        for name in {name for name, _ in stream.members}:
            first = max(first, ladder.first_step(index[name], taken[name]))
        entries.append((first, score, place, stream))
    entries.sort(key=lambda entry: entry[:3])
    return [(first, stream) for first, _, _, stream in entries if first <= ladder.steps]


def _chunks(
    queue: list[tuple[int, Stream]], structure: Structure, multiple: int
) -> list[tuple[int, list[Stream]]]:
    """The queue with streams of the same wide layers together, as many as divide their width.

    A chunk may go when its last stream may. The first chunk of layers takes what is over.
    """
    waiting: dict[tuple[str, ...], list[Stream]] = {}
    wanted: dict[tuple[str, ...], int] = {}
    result: list[tuple[int, list[Stream]]] = []
    for first, stream in queue:
        layers = tuple(sorted({name for name, _ in stream.members}))
        width = min(structure[name].c_out for name in layers)
        size = min(multiple, width // CHUNKS) if width >= WIDE else 1
        members = waiting.setdefault(layers, [])
        members.append(stream)
        if len(members) == wanted.setdefault(layers, width % max(size, 1) or size):
            result.append((first, members))
            waiting[layers], wanted[layers] = [], size
    # What is left is no whole chunk; it goes last, if all else was not enough.
    result += [(queue[-1][0], members) for members in waiting.values() if members]
    return result

"""Scores, limits and protection become masks.

``keep`` is (c_out, c_in), True stays. Connections go lowest (score, index) first, so a higher
count takes a superset: masks are nested, but for the swap described in :func:`select`.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from snacs.connections import check_scores, most_prunable, prune_order
from snacs.errors import InputError
from snacs.streams import live_channels, segments_live
from snacs.values import BoolArray, FloatArray, Layer, Segment, Structure

TIES = ("index", "value")


def select(
    structure: Structure,
    scores: Mapping[str, FloatArray],
    counts: Mapping[str, int],
    protected: Mapping[str, BoolArray],
    *,
    ties: str = "index",
    removed: Mapping[str, BoolArray] | None = None,
) -> dict[str, BoolArray]:
    """The mask of every prunable layer.

    Parameters
    ----------
    counts : connections that go, by layer; layers that are not named lose none.
    protected : (c_out,) filters by layer of which nothing goes.
    ties : "index" takes exact counts, equal scores by index. "value" cuts just below the score
        that would break the count: equal scores go or stay together, and at most ``counts`` go.
    removed : (c_out,) filters by layer that go as a whole (granularity "filter", as
        ``Allocation.removed`` gives them); scores and counts then decide nothing. The rows of
        these filters go, and in prunable layers the columns of channels that carry nothing else.

    Notes
    -----
    A live path leads from the network's input to its output: every layer reads at least one
    channel, and feeds at least one filter, that the input reaches. Where the lowest scores would
    cut it, the best-scoring connection that mends it stays, and the layer's lowest-scoring
    unprotected kept one goes instead, so counts stay exact. (Only if all others are protected or
    needed for the path themselves does the layer keep one more.) This swap is the one place where
    the mask of a higher target need not be a subset of that of a lower one, for the same
    protected filters.
    """
    if ties not in TIES:
        raise InputError(f"'ties' must be one of {', '.join(TIES)}. Got {ties!r}.")
    if removed is not None:
        return _without_filters(structure, removed)
    keep = {}
    for layer in structure.prunable:
        rows = protected.get(layer.name)
        values = np.asarray(scores[layer.name])
        check_scores(layer, values, rows)
        keep[layer.name] = _keep(layer, values, counts.get(layer.name, 0), rows, ties)
    return _Path(structure, keep, scores, protected).mend()


def _keep(
    layer: Layer, scores: FloatArray, count: int, protected: BoolArray | None, ties: str
) -> BoolArray:
    order = prune_order(scores, protected)
    most = min(len(order), most_prunable(layer.connections))
    if not 0 <= count <= most:
        raise InputError(
            f"Of layer {layer.name!r} between 0 and {most} of {layer.connections} connections can "
            f"go: 1 % and all protected filters stay. Got {count}."
        )
    if ties == "value" and count < len(order):
        ordered = scores.ravel()[order]
        count = int(np.searchsorted(ordered, ordered[count], side="left"))
    keep = np.ones(layer.connections, dtype=bool)
    keep[order[:count]] = False
    return keep.reshape(layer.c_out, layer.c_in)


def _without_filters(
    structure: Structure, removed: Mapping[str, BoolArray]
) -> dict[str, BoolArray]:
    """Rows of removed filters go, and columns of channels that only they feed."""
    live = {name: ~np.asarray(rows, dtype=bool) for name, rows in removed.items()}
    keep = {}
    for layer in structure.prunable:
        rows = live.get(layer.name, np.ones(layer.c_out, dtype=bool))
        # A channel that nobody is known to feed is not known to be dead.
        fed = np.zeros(layer.channels, dtype=bool)
        for segment in layer.feeds:
            fed[segment.start : segment.start + segment.length] = True
        channels = live_channels(layer, live) | ~fed
        keep[layer.name] = rows[:, None] & channels[layer.channel_of()]
    return keep


class _Path:
    """Follows what the network's input reaches, and mends the masks where nothing gets through.

    A gap is a layer without a live channel or filter, an output that nothing reaches, or a pinned
    connection (one that mends another gap) whose channel is dead. Every gap pins one connection
    for good, so mending ends.
    """

    def __init__(
        self,
        structure: Structure,
        keep: dict[str, BoolArray],
        scores: Mapping[str, FloatArray],
        protected: Mapping[str, BoolArray],
    ) -> None:
        self._structure = structure
        self._keep = keep
        self._scores = {name: np.asarray(scores[name]) for name in keep}
        self._protected = protected
        self._pinned = {name: np.zeros_like(mask) for name, mask in keep.items()}
        # What could be reached if nothing were pruned; beyond that nothing can be mended.
        self._dense: dict[str, BoolArray] = {}
        for layer in structure:
            channels = self._channels(layer.feeds, layer.channels, self._dense)
            channels |= not channels.any()
            self._dense[layer.name] = np.asarray(channels[layer.channel_of()].any(axis=1))

    def mend(self) -> dict[str, BoolArray]:
        while self._mend_first_gap():
            pass
        return self._keep

    def _mend_first_gap(self) -> bool:
        """Walk forward to the first gap; whether there was one, now mended."""
        live: dict[str, BoolArray] = {}
        for layer in self._structure:
            channels = self._channels(layer.feeds, layer.channels, live)
            wanted = np.full(layer.channels, fill_value=not channels.any())
            table = layer.channel_of()
            if layer.prunable:
                wanted[table[self._pinned[layer.name]]] = True
            wanted &= ~channels & self._channels(layer.feeds, layer.channels, self._dense)
            if wanted.any() and self._revive(layer.feeds, wanted, live, set()):
                return True
            channels |= not channels.any()  # nobody is known to feed it
            reach = channels[table]
            through = reach & self._keep[layer.name] if layer.prunable else reach
            live[layer.name] = np.asarray(through.any(axis=1))
            if layer.prunable and not live[layer.name].any():
                self._swap(layer, reach)
                return True
        ends = self._structure.outputs
        size = max((segment.start + segment.length for segment in ends), default=0)
        if self._channels(ends, size, live).any():
            return False
        return self._revive(ends, self._channels(ends, size, self._dense), live, set())

    def _channels(
        self, feeds: tuple[Segment, ...], channels: int, live: Mapping[str, BoolArray]
    ) -> BoolArray:
        """Live channels; sources later in the forward pass (loops) do not count as live yet."""
        waiting = {
            layer.name: np.zeros(layer.c_out, dtype=bool)
            for layer in self._structure
            if layer.name not in live
        }
        return segments_live(feeds, channels, {**waiting, **live})

    def _revive(
        self,
        feeds: tuple[Segment, ...],
        wanted: BoolArray,
        live: Mapping[str, BoolArray],
        seen: set[str],
    ) -> bool:
        """Pin the best connection of a filter that feeds a wanted channel; whether one could.

        Connections on live channels come first, then higher scores. A kept layer is passed
        through: what feeds it is revived.
        """
        best: tuple[bool, float, Layer, BoolArray] | None = None
        for segment in feeds:
            if segment.source not in live:
                continue
            layer = self._structure[segment.source]
            rows = np.zeros(layer.c_out, dtype=bool)
            end = segment.start + segment.length
            rows[segment.first : segment.first + segment.length] = wanted[segment.start : end]
            now, ever = (
                rows[:, None]
                & self._channels(layer.feeds, layer.channels, which)[layer.channel_of()]
                for which in (live, self._dense)
            )
            if layer.prunable:
                able = (now if now.any() else ever) & ~self._pinned[layer.name]
                if able.any():
                    found = (bool(now.any()), float(self._scores[layer.name][able].max()))
                    if best is None or found > best[:2]:
                        best = (*found, layer, able)
            elif layer.name not in seen:
                needed = np.zeros(layer.channels, dtype=bool)
                needed[layer.channel_of()[ever]] = True
                if needed.any() and self._revive(layer.feeds, needed, live, seen | {layer.name}):
                    return True
        if best is None:
            return False
        self._swap(best[2], best[3])
        return True

    def _swap(self, layer: Layer, wanted: BoolArray) -> None:
        """Keep and pin the best-scoring wanted connection; drop the lowest-scoring other one."""
        keep, pinned = self._keep[layer.name], self._pinned[layer.name]
        scores = self._scores[layer.name]
        best = divmod(int(np.argmax(np.where(wanted, scores, -np.inf))), layer.c_in)
        was_kept = bool(keep[best])
        keep[best] = pinned[best] = True
        rows = self._protected.get(layer.name)
        free = keep & ~pinned
        if rows is not None:
            free &= ~np.asarray(rows, dtype=bool)[:, None]
        if not was_kept and free.any():
            lowest = int(np.argmin(np.where(free, scores, np.inf)))
            keep[divmod(lowest, layer.c_in)] = False

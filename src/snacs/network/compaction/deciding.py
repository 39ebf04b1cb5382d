"""Which streams can be taken out: a calculation on the wiring, the weights and the probe.

A *stream* is everything that must go together: filters that meet in a channel (a residual sum, a
product with a gate), zeros that pad a shortcut, and in a grouped convolution the filters and the
input channels of one group. A stream can go if whoever reads one of its channels reads a 0, or has
no weight on it, or reads a constant that its bias can take over.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm
from torch.nn.utils import parametrize

from snacs.network.compaction.probing import Probe, alive_of, spread_groups
from snacs.network.compaction.wiring import Wiring
from snacs.network.reasons import reasons_not_to_cut
from snacs.network.sources import INPUT, Origins
from snacs.values import BoolArray, IntArray

CUTTABLE_NORMS = (_BatchNorm, _InstanceNorm, nn.PReLU)
Bundle = frozenset[str]
"""The layers that one removal touches: all their streams are tried, and undone, together."""


@dataclass(frozen=True, eq=False)
class Streams:
    """Stream numbers: of each source's filters, of each reader's channels (−1: none)."""

    rows: dict[str, IntArray]
    columns: dict[str, IntArray]
    norms: dict[str, IntArray]
    pinned: dict[int, str]
    """Why a stream must stay."""
    names: dict[tuple[str, int], int]

    @property
    def count(self) -> int:
        return 1 + max((int(rows.max()) for rows in self.rows.values() if len(rows)), default=-1)

    def of(self, origins: Origins) -> set[int]:
        """The streams of the exact filters among ``origins``."""
        return {self.names[origin] for origin in origins if origin in self.names}

    def bundles(self, gone: BoolArray) -> list[tuple[Bundle, set[int]]]:
        """Streams that go, by the sources whose filters they hold, in order of the forward pass."""
        holders: dict[int, set[str]] = {}
        for name, rows in self.rows.items():
            for number in np.unique(rows[gone[rows]]).tolist():
                holders.setdefault(number, set()).add(name)
        found: dict[Bundle, set[int]] = {}
        for number, names in holders.items():
            found.setdefault(frozenset(names), set()).add(number)
        return list(found.items())


def find_streams(model: nn.Module, wiring: Wiring) -> Streams:
    """Join what must go together, and note what cannot go at all."""
    joiner = _Joiner(wiring.sources)
    modules = dict(model.named_modules())
    channels = {name: joiner.columns(name, calls) for name, calls in wiring.norms.items()}
    for name in channels:
        if not _cuttable(modules[name]):
            kind = type(modules[name]).__name__
            joiner.pin_all(channels[name], f"{name!r} ({kind}), which it passes, cannot be cut")
    columns = {name: joiner.columns(name, calls) for name, calls in wiring.readers.items()}
    for name, found in columns.items():
        groups = int(getattr(modules[name], "groups", 1))
        if groups > 1:
            joiner.join_groups(name, found, groups)
    for name, reason in reasons_not_to_cut(modules, wiring.trace).items():
        joiner.pin_source(name, f"{name!r} cannot be cut: {reason}")
        joiner.pin_all(columns[name], f"{name!r}, which reads it, cannot be cut: {reason}")
    joiner.pin_origins(wiring.outputs, "it is part of the network's output")
    return joiner.finish(columns, channels)


def _cuttable(norm: nn.Module) -> bool:
    return isinstance(norm, CUTTABLE_NORMS) and not parametrize.is_parametrized(norm)


@dataclass
class _Joiner:
    """Union-find over all filters, with the reasons that pin them."""

    sources: Mapping[str, int]
    first: dict[str, int] = field(init=False)
    parent: list[int] = field(init=False)
    reasons: dict[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        starts = np.cumsum([0, *self.sources.values()]).tolist()
        self.first = dict(zip(self.sources, starts, strict=False))
        self.parent = list(range(starts[-1]))

    def root(self, node: int) -> int:
        while self.parent[node] != node:
            self.parent[node] = self.parent[self.parent[node]]
            node = self.parent[node]
        return node

    def join(self, one: int, other: int) -> None:
        one, other = self.root(one), self.root(other)
        self.parent[max(one, other)] = min(one, other)

    def pin(self, node: int, reason: str) -> None:
        self.reasons.setdefault(node, reason)

    def pin_source(self, name: str, reason: str) -> None:
        for index in range(self.sources[name]):
            self.pin(self.first[name] + index, reason)

    def pin_all(self, nodes: IntArray, reason: str) -> None:
        for node in nodes[nodes >= 0].tolist():
            self.pin(node, reason)

    def pin_origins(self, origins: Origins, reason: str) -> None:
        for name, index in origins:
            if name in self.first and index >= 0:
                self.pin(self.first[name] + index, reason)
            elif name in self.first:
                self.pin_source(name, reason)

    def columns(self, reader: str, calls: list[list[Origins]]) -> IntArray:
        """One filter per channel of a reader, all filters of the channel joined; −1 if none."""
        found = np.full(len(calls[0]), -1)
        for place in range(len(found)):
            origins = [call[place] for call in calls]
            exact = [
                [self.first[name] + i for name, i in each if name in self.first and i >= 0]
                for each in origins
            ]
            nodes = [node for each in exact for node in each]
            for node in nodes[1:]:
                self.join(nodes[0], node)
            if nodes:
                found[place] = nodes[0]
            for each in origins:
                blurred = frozenset((name, i) for name, i in each if name in self.first and i < 0)
                self.pin_origins(blurred, f"it reaches {reader!r} blended with other channels")
            if nodes and any(INPUT in each for each in origins):
                self.pin(nodes[0], f"it shares a channel of {reader!r} with the network's input")
            if nodes and not all(exact):
                self.pin(nodes[0], f"another call of {reader!r} reads something else there")
        return found

    def join_groups(self, name: str, columns: IntArray, groups: int) -> None:
        """Only whole groups can go: their filters with their channels."""
        rows = np.arange(self.sources[name]).reshape(groups, -1) + self.first[name]
        for filters, channels in zip(rows, columns.reshape(groups, -1), strict=True):
            for node in [*filters[1:].tolist(), *channels[channels >= 0].tolist()]:
                self.join(int(filters[0]), node)
            if (channels < 0).any():
                reason = f"its group in {name!r} reads channels that cannot be removed"
                self.pin(int(filters[0]), reason)

    def finish(self, columns: dict[str, IntArray], channels: dict[str, IntArray]) -> Streams:
        roots = np.array([self.root(node) for node in range(len(self.parent))], dtype=np.int64)
        numbers = np.unique(roots, return_inverse=True)[1] if len(roots) else roots

        def number(nodes: IntArray) -> IntArray:
            known: IntArray = np.where(nodes >= 0, numbers[nodes], -1) if len(numbers) else nodes
            return known

        pinned: dict[int, str] = {}
        for node in sorted(self.reasons):
            pinned.setdefault(int(numbers[node]), self.reasons[node])
        places = {name: slice(at, at + self.sources[name]) for name, at in self.first.items()}
        return Streams(
            rows={name: numbers[place] for name, place in places.items()},
            columns={name: number(nodes) for name, nodes in columns.items()},
            norms={name: number(nodes) for name, nodes in channels.items()},
            pinned=pinned,
            names={
                (name, i): int(numbers[at + i])
                for name, at in self.first.items()
                for i in range(self.sources[name])
            },
        )


@dataclass(frozen=True, eq=False)
class Decider:
    """The fixed facts of one network; :meth:`decide` is asked again when a removal is undone."""

    streams: Streams
    reads: dict[str, BoolArray]
    """(c_out, channels): a weight on a channel of another stream that is not 0 or foldable."""

    @staticmethod
    def of(model: nn.Module, streams: Streams, found: Probe) -> Decider:
        reads = {}
        for name, columns in streams.columns.items():
            module = model.get_submodule(name)
            groups = int(getattr(module, "groups", 1))
            alive = spread_groups(alive_of(module), groups)
            values = found.values.get(name, np.full(alive.shape[1], np.nan))
            takes = foldable(module)
            alive = alive & ~((values == 0) | (~np.isnan(values) & takes))
            rows = streams.rows[name]
            if np.intersect1d(rows, columns).size:
                alive = alive & (rows[:, None] != columns[None, :])
            reads[name] = alive
        return Decider(streams, reads)

    def decide(self, kept: Mapping[int, str]) -> tuple[BoolArray, dict[int, str]]:
        """Streams that go, as a bool array, and why others must stay.

        A layer keeps at least one filter: torch has no convolution without any.
        """
        kept = {**self.streams.pinned, **kept}
        while True:
            gone = self._shrink(kept)
            empty = [
                (name, rows)
                for name, rows in self.streams.rows.items()
                if name in self.reads and len(rows) and gone[rows].all()
            ]
            if not empty:
                return gone, kept
            for name, rows in empty:
                # The one that needs the fewest inputs holds on to the least.
                cheapest = int(self.reads[name].sum(axis=1).argmin())
                kept[int(rows[cheapest])] = f"{name!r} must keep one filter"

    def _shrink(self, kept: Mapping[int, str]) -> BoolArray:
        gone = np.zeros(self.streams.count, dtype=bool)
        pinned = np.zeros_like(gone)
        pinned[list(kept)] = True
        while True:
            heard = np.zeros_like(gone)
            for name, reads in self.reads.items():
                columns = self.streams.columns[name]
                used = reads[~gone[self.streams.rows[name]]].any(axis=0) & (columns >= 0)
                heard[columns[used]] = True
            more = ~(pinned | heard | gone)
            if not more.any():
                return gone
            gone |= more


def foldable(module: nn.Module) -> bool:
    """Whether a constant input channel acts like a bias: not where zeros are padded around it."""
    if isinstance(module, nn.Linear):
        return True
    padding = getattr(module, "padding", 0)
    if isinstance(padding, str):
        sides = [0] if padding == "valid" else [k - 1 for k in getattr(module, "kernel_size", ())]
    else:
        sides = list(padding) if isinstance(padding, tuple) else [padding]
    zeros = getattr(module, "padding_mode", "zeros") == "zeros"
    return int(getattr(module, "groups", 1)) == 1 and not (zeros and any(sides))

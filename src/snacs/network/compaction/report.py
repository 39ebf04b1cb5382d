"""What compaction did, as plain values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from torch import nn

from snacs.network.compaction.deciding import Streams
from snacs.network.compaction.probing import Probe, alive_of
from snacs.values import BoolArray


@dataclass(frozen=True)
class LayerChange:
    """Sizes of one layer before and after. ``dead`` filters had no weight left before."""

    name: str
    filters: int
    filters_left: int
    channels: int
    channels_left: int
    weights: int
    weights_left: int
    dead: int


@dataclass(frozen=True)
class Removal:
    """Filters of coupled layers that could not be removed, and why."""

    layers: tuple[str, ...]
    filters: int
    reason: str


@dataclass(frozen=True)
class CompactReport:
    """What :func:`snacs.compact` removed, and what it had to leave.

    Attributes
    ----------
    layers : tuple of LayerChange
    undone : tuple of Removal
        Removals that were tried and taken back, because the outputs changed or the network's
        forward failed.
    left : tuple of Removal
        Filters without weights that are still there, by layer and reason.
    rewritten : tuple of str
        Modules whose forward had channel counts in it; they are ``torch.fx`` graphs now.
    constants : dict
        How many removed channels carried a constant that the bias of the reading layer took over.
    folded : tuple of str
        BatchNorms that are folded into the layer before them.
    difference : float
        Largest difference of the outputs on the example, in the network's own precision, relative
        to the largest output.
    """

    layers: tuple[LayerChange, ...]
    undone: tuple[Removal, ...] = ()
    left: tuple[Removal, ...] = ()
    rewritten: tuple[str, ...] = ()
    constants: dict[str, int] = field(default_factory=dict)
    folded: tuple[str, ...] = ()
    difference: float = 0.0
    notes: tuple[str, ...] = ()

    @property
    def removed_filters(self) -> int:
        return sum(layer.filters - layer.filters_left for layer in self.layers)

    @property
    def removed_weights(self) -> int:
        """Convolution and linear weights that are gone, biases excluded."""
        return sum(layer.weights - layer.weights_left for layer in self.layers)

    @property
    def weights(self) -> int:
        return sum(layer.weights for layer in self.layers)

    def __getitem__(self, name: str) -> LayerChange:
        for layer in self.layers:
            if layer.name == name:
                return layer
        raise KeyError(name)

    def __str__(self) -> str:
        share = self.removed_weights / self.weights if self.weights else 0.0
        lines = [
            f"{self.removed_filters:,} of {sum(x.filters for x in self.layers):,} filters and "
            f"{self.removed_weights:,} of {self.weights:,} weights ({share:.1%}) are gone"
        ]
        lines += [f"Undone: {_line(removal)}" for removal in self.undone]
        lines += [f"Left: {_line(removal)}" for removal in self.left]
        lines += [f"Rewritten as a graph: {name or 'the network'}" for name in self.rewritten]
        return "\n".join(lines + [f"Note: {note}" for note in self.notes])

    def with_outcome(
        self, *, folded: Sequence[str], notes: Sequence[str], difference: float
    ) -> CompactReport:
        return replace(self, folded=tuple(folded), notes=tuple(notes), difference=difference)


def _line(removal: Removal) -> str:
    return f"{removal.filters} filter(s) of {', '.join(removal.layers)}: {removal.reason}"


def describe_left(
    model: nn.Module,
    streams: Streams,
    found: Probe,
    rows: Mapping[str, BoolArray],
    kept: Mapping[int, str],
) -> Iterator[Removal]:
    """Filters without weights that stay, by layer and reason."""
    partners: dict[int, set[str]] = {}
    varying = {name: set(streams.rows[name][found.varies[name]].tolist()) for name in rows}
    for name, numbers in varying.items():
        for number in numbers:
            partners.setdefault(number, set()).add(name)
    for name, stays in rows.items():
        dead = ~alive_of(model.get_submodule(name)).any(axis=1) & stays
        reasons: Counter[str] = Counter()
        for index in np.flatnonzero(dead).tolist():
            number = int(streams.rows[name][index])
            if number in kept:
                reasons[kept[number]] += 1
            elif partners.get(number):
                reasons["it shares its channel with filters that are needed"] += 1
            else:
                reasons[
                    "it still gives a constant (bias or BatchNorm), which is read where zeros "
                    "are padded around it"
                ] += 1
        for reason, count in reasons.items():
            yield Removal((name,), count, reason)

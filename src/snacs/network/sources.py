"""Where the elements of a tensor come from: the bookkeeping behind :mod:`snacs.network.trace`.

Every tensor of the traced pass carries a :class:`Tag`: a small array of labels that broadcasts to
the tensor's shape (a feature map of C channels has labels of shape (1, C, 1, 1)), and for every
label the set of filters that reach the elements so labelled. Whatever moves data about (slices,
concatenations, reshapes) moves the labels by running the same function on them, so there is no
rule per function that could be wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from snacs.values import MIXED, NETWORK_INPUT, Segment

Origin = tuple[str, int]
"""(layer, filter); filter −1 says that some filters of the layer come in, unknown which."""
Origins = frozenset[Origin]

UNKNOWN: Origin = (MIXED, -1)
"""Something besides the named filters: the element may differ from 0 when they are all dead."""
INPUT: Origin = (NETWORK_INPUT, -1)
NOTHING: Origins = frozenset()


@dataclass(frozen=True, eq=False)
class Tag:
    """Sources of one tensor; ``labels`` has its number of dimensions, each of size 1 or full.

    An element is 0 if all filters in ``origins[label]`` are dead and silent, unless
    :data:`UNKNOWN` is among them.
    """

    labels: NDArray[np.int64]
    origins: tuple[Origins, ...]

    def fits(self, shape: Sequence[int]) -> bool:
        """Whether the labels broadcast to a tensor of this shape."""
        return self.labels.ndim == len(shape) and all(
            mine in (1, size) for mine, size in zip(self.labels.shape, shape, strict=True)
        )

    def constant_along(self, dims: Iterable[int]) -> bool:
        return all(self.labels.shape[dim] == 1 for dim in dims)

    def with_origins(self, more: Origins) -> Tag:
        """The same tag with further origins everywhere."""
        return Tag(self.labels, tuple(origins | more for origins in self.origins))

    def everything(self) -> Origins:
        return frozenset().union(*self.origins)

    def columns(self, dim: int, size: int) -> list[Origins]:
        """The origins of each index along ``dim``, united over all other dimensions."""
        rows = np.moveaxis(self.labels, dim, 0).reshape(self.labels.shape[dim], -1)
        found = [frozenset().union(*(self.origins[i] for i in np.unique(row))) for row in rows]
        return found if len(found) == size else found * size


def uniform(origins: Origins, ndim: int) -> Tag:
    """A tag that says the same of every element."""
    return Tag(np.zeros((1,) * ndim, dtype=np.int64), (origins,))


def filters(name: str, count: int, *, dim: int, ndim: int) -> Tag:
    """The tag of a layer's own output: filter i at index i of ``dim``."""
    shape = [1] * ndim
    shape[dim] = count
    labels = np.arange(count, dtype=np.int64).reshape(shape)
    return Tag(labels, tuple(frozenset({(name, i)}) for i in range(count)))


def blend(origins: Origins) -> Origins:
    """What an operation leaves that nobody can follow: the layers stay, the filters are lost.

    The network's input alone stays itself: no function turns it into anything a filter made.
    """
    sources = {name for name, _ in origins}
    unknown = NOTHING if sources <= {NETWORK_INPUT} else frozenset({UNKNOWN})
    return unknown | frozenset((name, -1) for name in sources)


def join(first: Tag, second: Tag, *, product: bool = False) -> Tag:
    """Both tags at once, broadcast against each other as the tensors are.

    A product vanishes where either factor does, so UNKNOWN stays only where both have it.
    """
    left, right = np.broadcast_arrays(first.labels, second.labels)
    width = len(second.origins)
    pairs, labels = np.unique(left * width + right, return_inverse=True)
    united = []
    for pair in pairs.tolist():
        a, b = first.origins[pair // width], second.origins[pair % width]
        both = a | b
        if product and not (UNKNOWN in a and UNKNOWN in b):
            both -= {UNKNOWN}
        united.append(both)
    return Tag(compress(labels.reshape(left.shape)), tuple(united))


def compress(labels: NDArray[Any]) -> NDArray[np.int64]:
    """Drop every dimension along which the labels do not change to size 1."""
    for dim in range(labels.ndim):
        first = labels.take([0], axis=dim) if labels.shape[dim] else labels
        if labels.shape[dim] > 1 and bool((labels == first).all()):
            labels = first
    return np.ascontiguousarray(labels, dtype=np.int64)


def segments(columns: Sequence[Origins]) -> tuple[Segment, ...]:
    """Per-channel origins as runs in which channel and filter advance together.

    >>> segments([frozenset({("conv", 4)}), frozenset({("conv", 5)})])
    (Segment(source='conv', first=4, start=0, length=2),)
    """
    pairs: dict[str, set[tuple[int, int]]] = {}
    for channel, origins in enumerate(columns):
        for source, index in origins:
            if index >= 0:
                pairs.setdefault(source, set()).add((channel - index, channel))
            elif source in (MIXED, NETWORK_INPUT):
                pairs.setdefault(source, set()).add((0, channel))
    found = []
    for source, places in pairs.items():
        ordered = sorted(places)
        cuts = [0, *(i + 1 for i, (a, b) in enumerate(pairwise(ordered)) if _breaks(a, b))]
        for begin, end in pairwise([*cuts, len(ordered)]):
            shift, start = ordered[begin]
            first = 0 if source in (MIXED, NETWORK_INPUT) else start - shift
            found.append(Segment(source, first, start, end - begin))
    return tuple(sorted(found, key=lambda s: (s.start, s.source, s.first, s.length)))


def _breaks(a: tuple[int, int], b: tuple[int, int]) -> bool:
    return a[0] != b[0] or b[1] != a[1] + 1


def layers_in(columns: Iterable[Origins]) -> set[str]:
    """Names of all layers among the origins."""
    return {name for origins in columns for name, _ in origins} - {MIXED, NETWORK_INPUT}


def columns_per_channel(columns: Sequence[Origins]) -> int:
    """How many neighbouring columns each channel takes behind a Flatten; 1 if there is none.

    Only runs of equal length that each follow an exact filter count: a run of unknown origin is
    not one channel.
    """
    starts = [0, *(i + 1 for i, (a, b) in enumerate(pairwise(columns)) if a != b)]
    length = len(columns) // len(starts)
    lengths = {b - a for a, b in pairwise([*starts, len(columns)])}
    heads = [columns[start] for start in starts]
    exact = all(any(index >= 0 for _, index in origins) for origins in heads)
    return length if exact and lengths == {length} and len(set(heads)) == len(heads) else 1

"""Which filters are scored together (G, taken over from MINT), and how loud their kernels are."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from snacs.values import Layer

Floats = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Block:
    """One group of a grouped convolution (the whole layer otherwise), cut into groups to score.

    Attributes
    ----------
    rows : tuple of slice
        Output filters of each group, absolute.
    columns : tuple of slice
        Columns of the weight of each group.
    first_channel : int
        Absolute input channel of column 0.
    """

    rows: tuple[slice, ...]
    columns: tuple[slice, ...]
    first_channel: int

    @property
    def single(self) -> bool:
        """True where every group is one filter, on both sides."""
        return all(part.stop - part.start == 1 for part in (*self.rows, *self.columns))

    @property
    def filters(self) -> slice:
        """All output filters of the block."""
        return slice(self.rows[0].start, self.rows[-1].stop)

    def spread(self, values: Floats) -> Floats:
        """(row groups, column groups) → (filters, columns): every connection its group's value."""
        if self.single:
            return values
        rows = np.repeat(values, [part.stop - part.start for part in self.rows], axis=0)
        return np.repeat(rows, [part.stop - part.start for part in self.columns], axis=1)

    def channels(self, columns: slice) -> slice:
        """The absolute input channels of some columns."""
        return slice(columns.start + self.first_channel, columns.stop + self.first_channel)


def split(count: int, groups: int | None, *, start: int = 0) -> tuple[slice, ...]:
    """Contiguous groups of nearly equal size, as ``np.array_split``; None is single filters.

    >>> split(5, 2)
    (slice(0, 3, None), slice(3, 5, None))
    """
    groups = count if groups is None else min(groups, count)
    size, larger = divmod(count, groups)
    starts = [start + group * size + min(group, larger) for group in range(groups + 1)]
    return tuple(slice(first, stop) for first, stop in pairwise(starts))


def blocks_of(layer: Layer, groups: int | None) -> tuple[Block, ...]:
    """The convolution groups of a layer, each cut into groups to score.

    G is shared out among the convolution groups, at least 1 each: a group of filters never
    straddles two of them. Fewer filters than G are scored one by one.
    """
    per_block = layer.c_out // layer.groups
    row_groups = None if groups is None else max(1, groups // layer.groups)
    return tuple(
        Block(
            rows=split(per_block, row_groups, start=block * per_block),
            columns=split(layer.c_in, groups),
            first_channel=block * layer.c_in,
        )
        for block in range(layer.groups)
    )


def group_norms(weight: Floats, blocks: tuple[Block, ...]) -> Floats:
    """(c_out, c_in) L2 norms of the kernels; of a group, the root mean square of its kernels'."""
    squares = (weight.astype(np.float64) ** 2).sum(axis=2)
    for block in blocks:
        if not block.single:
            own = squares[block.filters]
            for axis, parts in ((0, block.rows), (1, block.columns)):
                starts = [part.start - parts[0].start for part in parts]
                sizes = [part.stop - part.start for part in parts]
                own = np.add.reduceat(own, starts, axis=axis) / np.expand_dims(sizes, 1 - axis)
            squares[block.filters] = block.spread(own)
    return np.asarray(np.sqrt(squares))

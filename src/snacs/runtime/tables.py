"""Tables of a convolution: which vectors make a tile, which kernels read which channel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from snacs.runtime.kernels import TAPS
from snacs.runtime.layout import Geometry
from snacs.runtime.vectors import LANES
from snacs.values import FloatArray

Ints = npt.NDArray[np.int64]
ALL = (1 << LANES) - 1
"""A mask with every lane in it."""


@dataclass
class Tables:
    """Growing lists of numbers, that become one array each."""

    ints: list[Ints] = field(default_factory=list)
    rows: list[npt.NDArray[np.int32]] = field(default_factory=list)
    floats: list[npt.NDArray[np.float32]] = field(default_factory=list)
    _sizes: dict[str, int] = field(default_factory=dict)

    def add_ints(self, values: Any) -> int:
        return self._add("ints", self.ints, np.asarray(values, np.int64).ravel())

    def add_rows(self, values: Any) -> int:
        return self._add("rows", self.rows, np.asarray(values, np.int32).ravel())

    def add_floats(self, values: Any) -> int:
        return self._add("floats", self.floats, np.asarray(values, np.float32).ravel())

    def _add(self, name: str, parts: list[Any], values: Any) -> int:
        place = self._sizes.get(name, 0)
        parts.append(values)
        self._sizes[name] = place + len(values)
        return place

    def arrays(self) -> tuple[Ints, npt.NDArray[np.int32], npt.NDArray[np.float32]]:
        return (
            np.concatenate([*self.ints, np.zeros(16, np.int64)]),
            np.concatenate([*self.rows, np.zeros(16, np.int32)]),
            np.concatenate([*self.floats, np.zeros(64, np.float32)]),
        )


@dataclass(frozen=True, eq=False)
class Tiles:
    """Vectors by their first float in the input and the output plane, and lanes that count."""

    vectors: int
    x: Ints
    out: Ints
    masks: Ints

    @property
    def count(self) -> int:
        return len(self.x) // self.vectors


def image_tiles(x: Geometry, out: Geometry, *, step: tuple[int, int], vectors: int) -> Tiles:
    """One vector per output pixel; rows are not broken if ``vectors`` divides the width."""
    ys, xs = np.divmod(np.arange(out.height * out.width), out.width)
    source = x.origin + (ys * step[0] * x.row + xs * step[1]) * x.unit
    target = out.origin + (ys * out.row + xs) * out.unit
    return _fill_up(source, target, np.full(len(ys), ALL), vectors)


def pixel_tiles(x: Geometry, out: Geometry, *, vectors: int) -> Tiles:
    """Vectors of neighbouring pixels: over row ends where both planes have rows alike."""
    if x.row == out.row:
        last = (out.height - 1) * out.row + out.width
        starts = np.arange(0, last, LANES)
        pixels = starts[:, None] + np.arange(LANES)
        inside = (pixels % out.row < out.width) & (pixels < last)
        return _fill_up(x.origin + starts, out.origin + starts, _bits(inside), vectors)
    across = np.arange(0, out.width, LANES)
    ys = np.repeat(np.arange(out.height), len(across))
    xs = np.tile(across, out.height)
    inside = xs[:, None] + np.arange(LANES) < out.width
    source, target = x.origin + ys * x.row + xs, out.origin + ys * out.row + xs
    return _fill_up(source, target, _bits(inside), vectors)


def wrapped_tiles(x: Geometry, out: Geometry, *, vectors: int) -> tuple[Tiles, Ints]:
    """Vectors below each other, and by tile the lanes that have a left and a right neighbour.

    Planes must have as many vectors. The last tile may cover some of the one before it again,
    without lanes that count.
    """
    across = np.arange(0, out.width, LANES)
    down = np.arange(0, out.height * out.width, max(LANES, out.width))
    firsts = np.arange(0, len(down), vectors)
    inside = np.minimum(firsts, len(down) - vectors)[:, None] + np.arange(vectors)
    again = np.tile((inside < firsts[:, None]).ravel(), len(across))
    starts = (across[:, None] + down[inside.ravel()]).ravel()
    pixels = starts[:, None] + np.arange(LANES)
    columns = pixels % out.width
    counts = (pixels < out.height * out.width) & ~again[:, None]
    tiles = Tiles(vectors, x.origin + starts, out.origin + starts, _bits(counts))
    edges = np.stack([_bits(columns > 0), _bits(columns < out.width - 1)], axis=1)
    return tiles, edges[::vectors]


def _bits(inside: npt.NDArray[np.bool_]) -> Ints:
    bits: Ints = (inside.astype(np.int64) << np.arange(LANES)).sum(axis=1)
    return bits


def _fill_up(x: Any, out: Any, masks: Any, vectors: int) -> Tiles:
    """Repeat the last vector, with no lane that counts, until tiles are full."""
    missing = -len(x) % vectors
    masks = np.concatenate([masks, np.zeros(missing, np.int64)])
    x, out = (np.concatenate([each, np.repeat(each[-1:], missing)]) for each in (x, out))
    return Tiles(vectors, x, out, masks)


@dataclass(frozen=True, eq=False)
class Kept:
    """Kept kernels by block of filters, then by input channel.

    Attributes
    ----------
    blocks : (blocks, 4), first filter, filters, first group, groups
    groups : (groups, 4), channel, index of the taps, first kernel, last kernel
    rows : filter of each kernel, counted within its block
    weights : (kernels, taps)
    """

    blocks: Ints
    groups: Ints
    rows: npt.NDArray[np.int32]
    weights: FloatArray


def choose_taps(count: int) -> int:
    """How many taps a compiled kernel should do at once, if there are so many in all."""
    return min(TAPS, key=lambda size: (-(-count // size) * (size + 1.5), size))


def keep(weight: FloatArray, *, groups: int, blocks: int, taps: Sequence[Sequence[int]]) -> Kept:
    """Order what is other than zero of a (c_out, c_in / groups, all taps) weight.

    ``taps`` are numbers of taps, −1 for a place that is not used; a kernel is kept if any of the
    taps that are done together is other than zero.
    """
    c_out, c_in, _ = weight.shape
    padded = np.concatenate([weight, np.zeros((c_out, c_in, 1), weight.dtype)], axis=2)
    parts = padded[:, :, np.asarray(taps, np.int64)]  # (c_out, c_in, groups of taps, taps)
    i, j, t = np.nonzero(parts.any(axis=3))
    channel = j + i // (c_out // groups) * c_in
    size = -(-c_out // blocks)
    order = np.lexsort((i, t, channel, i // size))
    i, j, t, channel = i[order], j[order], t[order], channel[order]
    block = i // size
    key = (block * (c_in * groups) + channel) * len(taps) + t
    starts = np.flatnonzero(np.diff(key, prepend=-1))
    ends = np.append(starts[1:], len(key))
    found = np.stack([channel[starts], t[starts], starts, ends], axis=1)
    firsts = np.arange(0, c_out, size)
    groups_of = np.searchsorted(block[starts], np.arange(len(firsts) + 1))
    return Kept(
        blocks=np.stack(
            [firsts, np.minimum(size, c_out - firsts), groups_of[:-1], np.diff(groups_of)], axis=1
        ),
        groups=found,
        rows=(i - block * size).astype(np.int32),
        weights=parts[i, j, t],
    )

"""One convolution as a row of a program: which kernel does it, in which tiles and blocks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from snacs.runtime import fields as f
from snacs.runtime.kernels import VECTORS_BELOW
from snacs.runtime.layout import Geometry
from snacs.runtime.steps import Conv
from snacs.runtime.tables import (
    Tables,
    Tiles,
    choose_taps,
    image_tiles,
    keep,
    pixel_tiles,
    wrapped_tiles,
)
from snacs.runtime.vectors import LANES, WIDE
from snacs.values import FloatArray

_MANY = 32
"""Kernels per channel from which two vectors of pixels at once pay."""
_CACHE = 32768
"""Bytes of partial sums that stay in the first cache beside everything else."""
_ITEMS = 2
"""Items per thread that an operation should have, for several threads to share it."""
_GHZ = 3.0


@dataclass(frozen=True, eq=False)
class ConvRow:
    """Fields of a row, nanoseconds that an item takes, floats of partial sums that it needs."""

    fields: dict[int, Any]
    cost: float
    sums: int


def reach(step: Conv) -> int:
    """How far any tap of the layer lies outside of its input."""
    found = 0
    for axis, (size, out) in enumerate(
        ((step.x.height, step.out.height), (step.x.width, step.out.width))
    ):
        span = (step.weight.shape[2 + axis] - 1) * step.dilation[axis]
        last = (out - 1) * step.stride[axis] + span - step.padding[axis]
        found = max(found, step.padding[axis], last - (size - 1))
    return found


def plain(step: Conv) -> bool:
    """Whether a layer is 3×3 and reads one pixel around each of its outputs' places."""
    return step.stride == step.dilation == (1, 1) and step.weight.shape[2:] == (3, 3)


def wrapping(step: Conv) -> bool:
    """Whether a layer can read planes whose rows have no zeros between them."""
    return reach(step) == 0 or (plain(step) and step.padding == (1, 1))


def conv_row(
    step: Conv,
    x: Geometry,
    out: Geometry,
    *,
    phases: dict[tuple[int, int], int] | None,
    tables: Tables,
    threads: int,
) -> ConvRow:
    """Choose kernel, tiles and blocks for a layer, and write its tables."""
    single = step.weight.shape[2:] == (1, 1)
    one_pixel = (x.height, x.width, out.height, out.width) == (1, 1, 1, 1)
    if x.unit == 1 and one_pixel and single and step.groups == 1:
        return _by_matrix(step, x, out, tables)
    offsets = _offsets(step, x, phases)
    if single:
        tiles = _tiles(step, x, out, _most(step, x, out, limit=8))
        latency = {8: 1.3, 4: 1.3, 2: 2.0, 1: 4.0}[tiles.vectors]
        chunks = _chunks(step.x.channels, 9)
        if step.groups > 1 or step.kept * latency < _taken(step, chunks) * 11:
            return _by_rows(step, replace(tiles, x=tiles.x + offsets[0]), tables, threads)
        weight = step.weight.reshape(step.out.channels, 1, step.x.channels)
        channels = [offsets[0] + n * x.plane for n in range(step.x.channels)]
        return _by_taps(step, x, out, weight, channels, tables, threads)
    weight = step.weight.reshape(*step.weight.shape[:2], -1)
    return _by_taps(step, x, out, weight, offsets, tables, threads)


def _offsets(step: Conv, x: Geometry, phases: dict[tuple[int, int], int] | None) -> list[int]:
    """Floats from an output pixel's place in the input to each tap."""
    found = []
    for ky in range(step.weight.shape[2]):
        for kx in range(step.weight.shape[3]):
            row = ky * step.dilation[0] - step.padding[0]
            column = kx * step.dilation[1] - step.padding[1]
            if phases is None:
                found.append(x.offset(row, column))
                continue
            sy, sx = step.stride
            plane = phases[row % sy, column % sx] * step.x.channels * x.plane
            found.append(plane + x.offset(row // sy, column // sx))
    return found


def _chunks(count: int, size: int) -> list[list[int]]:
    """Numbers up to ``count`` in lists of ``size``, the last filled up with −1."""
    numbers = [*range(count), *[-1] * (-count % size)]
    return [numbers[at : at + size] for at in range(0, len(numbers), size)]


def _taken(step: Conv, chunks: list[list[int]]) -> int:
    """Pairs of a filter and a chunk of channels that have any weight."""
    flat = step.weight.reshape(step.weight.shape[0], -1)
    padded = np.pad(flat, ((0, 0), (0, 1)))
    return int(padded[:, np.asarray(chunks)].any(axis=2).sum())


def _by_taps(
    step: Conv,
    x: Geometry,
    out: Geometry,
    weight: FloatArray,
    offsets: list[int],
    tables: Tables,
    threads: int,
) -> ConvRow:
    size = choose_taps(len(offsets))
    chunks = _chunks(len(offsets), size)
    edges = None
    if x.wraps and plain(step) and step.padding == (1, 1):
        vectors, variant = _sharing(out)
        tiles, edges = wrapped_tiles(x, out, vectors=vectors)
    else:
        shared = WIDE and x.unit > 1 and plain(step) and out.width % 4 == 0
        vectors = 4 if shared else _pair(step, x, out, threads)
        variant = size * 10 + vectors
        tiles = _tiles(step, x, out, vectors)
    blocks = _blocks(step.out.channels, tiles.count, threads)
    kept = keep(weight, groups=step.groups, blocks=blocks, taps=chunks)
    taps_at = [
        tables.add_ints([offsets[t] if t >= 0 else offsets[chunk[0]] for t in chunk])
        for chunk in chunks
    ]
    groups = kept.groups.copy()
    groups[:, 0] *= x.plane
    groups[:, 1] = np.asarray(taps_at, np.int64)[groups[:, 1]]
    row = _tiled(step, tiles, tables) | {
        f.KIND: f.CONV,
        f.ITEMS: tiles.count * len(kept.blocks),
        f.VARIANT: variant,
        f.EDGES_AT: -1 if edges is None else tables.add_ints(edges),
        f.BLOCKS: len(kept.blocks),
        f.BLOCKS_AT: tables.add_ints(kept.blocks),
        f.GROUPS_AT: tables.add_ints(groups),
        f.ROWS_AT: tables.add_rows(kept.rows),
        f.WEIGHTS_AT: tables.add_floats(kept.weights),
    }
    cost = len(kept.rows) / len(kept.blocks) * (size + 1) * vectors / 2 / _GHZ
    return ConvRow(row, cost, int(kept.blocks[:, 1].max()) * vectors * LANES)


def _by_rows(step: Conv, tiles: Tiles, tables: Tables, threads: int) -> ConvRow:
    """A 1×1 layer that keeps single channels: filter by filter."""
    count, width = step.weight.shape[:2]
    flat = step.weight.reshape(count, width)
    filters, columns = np.nonzero(flat)
    weights = flat[filters, columns]
    columns = columns + filters // (count // step.groups) * width
    size = -(-count // _blocks(count, tiles.count, threads))
    firsts = np.arange(0, step.out.channels, size)
    blocks = np.zeros((len(firsts), 4), np.int64)
    blocks[:, 0], blocks[:, 1] = firsts, np.minimum(size, step.out.channels - firsts)
    row = _tiled(step, tiles, tables) | {
        f.KIND: f.ROWS,
        f.ITEMS: tiles.count * len(blocks),
        f.BLOCKS: len(blocks),
        f.BLOCKS_AT: tables.add_ints(blocks),
        f.GROUPS_AT: tables.add_ints(np.searchsorted(filters, np.arange(count + 1))),
        f.ROWS_AT: tables.add_rows(columns),
        f.WEIGHTS_AT: tables.add_floats(weights),
    }
    return ConvRow(row, len(weights) / len(blocks) * tiles.vectors / _GHZ, 8 * LANES)


def _by_matrix(step: Conv, x: Geometry, out: Geometry, tables: Tables) -> ConvRow:
    """One pixel of one image: a matrix times a vector, 64 filters at a time."""
    filters, channels = step.weight.shape[:2]
    padded = np.zeros((channels, -(-filters // 64) * 64), np.float32)
    padded[:, :filters] = step.weight.reshape(filters, channels).T
    row = {
        f.KIND: f.DENSE,
        f.ITEMS: padded.shape[1] // 64,
        f.SOURCES: channels,
        f.X_ORIGIN: x.origin,
        f.OUT_ORIGIN: out.origin,
        f.BIAS_AT: tables.add_floats(step.bias),
        f.WEIGHTS_AT: tables.add_floats(padded),
    }
    return ConvRow(row, channels * 8 / _GHZ, 64)


def _tiled(step: Conv, tiles: Tiles, tables: Tables) -> dict[int, Any]:
    return {
        f.VECTORS: tiles.vectors,
        f.TILES: tiles.count,
        f.X_BASES: tables.add_ints(tiles.x),
        f.OUT_BASES: tables.add_ints(tiles.out),
        f.MASKS: tables.add_ints(tiles.masks),
        f.BIAS_AT: tables.add_floats(step.bias),
    }


def _tiles(step: Conv, x: Geometry, out: Geometry, vectors: int) -> Tiles:
    if x.unit > 1:
        return image_tiles(x, out, step=step.stride, vectors=vectors)
    return pixel_tiles(x, out, vectors=vectors)


def _pair(step: Conv, x: Geometry, out: Geometry, threads: int) -> int:
    """One or two vectors at once: two where there are registers, vectors and kernels for it."""
    if not WIDE or _most(step, x, out, limit=2) == 1:
        return 1
    if x.unit > 1:
        return 2
    blocks = _blocks(step.out.channels, -(-len(_tiles(step, x, out, 1).x) // 2), threads)
    kernels = step.kept / (step.weight.shape[2] * step.weight.shape[3])
    cached = 2 * LANES * 4 * step.out.channels / blocks <= _CACHE
    return 2 if cached and kernels / step.x.channels / blocks >= _MANY else 1


def _most(step: Conv, x: Geometry, out: Geometry, *, limit: int) -> int:
    """The largest power of two, up to ``limit``, that there are vectors for."""
    there = len(_tiles(step, x, out, 1).x)
    return min(limit, 1 << (there.bit_length() - 1))


def _sharing(out: Geometry) -> tuple[int, int]:
    """How many vectors of a plane whose rows wrap are done at once, and by which kernel."""
    step = max(1, LANES // out.width)
    there = -(-out.height // step)
    vectors = VECTORS_BELOW.get(step, 1)
    if there < vectors:
        vectors = 1
    return vectors, 1000 + 10 * vectors + (step if vectors > 1 else 0)


def _blocks(filters: int, tiles: int, threads: int) -> int:
    """Blocks of filters, where there are too few tiles for several threads."""
    wanted = _ITEMS * threads if threads > 1 else 1
    return max(1, min(-(-wanted // tiles), filters // 4))

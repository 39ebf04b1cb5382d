"""Matrices as small grey PNGs: what a browser colours, at a size that can be mailed."""

from __future__ import annotations

import base64
import struct
import zlib
from typing import Any

import numpy as np

from snacs.values import BoolArray, FloatArray

_SIDES = (512, 384, 256, 192, 128, 96, 64, 48, 32)
_CELLS = 2_400_000
"""Cells of all layers together that a report holds; about as many bytes of PNG."""


def side_for(shapes: list[tuple[int, int]]) -> int:
    """The longest side at which the matrices of all layers fit into one report.

    >>> side_for([(64, 64)] * 54), side_for([(512, 512)] * 300)
    (512, 64)
    """
    for side in _SIDES:
        cells = sum(min(rows, side) * min(columns, side) for rows, columns in shapes)
        if cells <= _CELLS:
            return side
    return _SIDES[-1]


def score_picture(values: FloatArray, side: int) -> dict[str, Any]:
    """Scores as 8 bits between the least and the greatest, averaged in blocks where large."""
    blocks = block_means(values, side)
    low, high = float(blocks.min()), float(blocks.max())
    grey = np.rint((blocks - low) / ((high - low) or 1.0) * 255).astype(np.uint8)
    return {"png": png(grey), "low": low, "high": high, **_shape(blocks, values.shape)}


def mask_picture(keep: BoolArray, side: int) -> dict[str, Any]:
    """Kept connections as white; grey is the kept share of a block where the mask is large."""
    if max(keep.shape) <= side:
        return {"png": png(keep, bits=1), **_shape(keep, keep.shape)}
    blocks = block_means(keep.astype(np.float32), side)
    return {"png": png(np.rint(blocks * 255).astype(np.uint8)), **_shape(blocks, keep.shape)}


def block_means(values: FloatArray, side: int) -> FloatArray:
    """Means of blocks such that neither side is longer than ``side``.

    >>> block_means(np.arange(6.0).reshape(2, 3), 2).tolist()
    [[0.5, 2.0], [3.5, 5.0]]
    """
    result = np.asarray(values, dtype=np.float64)
    for axis in (0, 1):
        size = result.shape[axis]
        if size > side:
            step = -(-size // side)
            starts = np.arange(0, size, step)
            sums = np.add.reduceat(result, starts, axis=axis)
            counts = np.diff(np.append(starts, size))
            result = sums / np.expand_dims(counts, 1 - axis)
    return result


def png(grey: np.ndarray[Any, Any], *, bits: int = 8) -> str:
    """A greyscale PNG as base64; with ``bits=1`` the array is bool."""
    rows = np.packbits(grey, axis=1) if bits == 1 else grey
    filtered = np.hstack([np.zeros((len(rows), 1), np.uint8), rows])  # filter type 0 of each row
    header = struct.pack(">IIBBBBB", grey.shape[1], grey.shape[0], bits, 0, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(filtered.tobytes(), 9)), (b"IEND", b""))
    content = b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks
    )
    return base64.b64encode(content).decode()


def _shape(shown: np.ndarray[Any, Any], whole: tuple[int, ...]) -> dict[str, int]:
    """Rows and columns of the picture, and how many filters and channels one of them stands for."""
    rows, columns = shown.shape
    return {
        "rows": rows,
        "columns": columns,
        "tall": -(-whole[0] // rows),
        "wide": -(-whole[1] // columns),
    }

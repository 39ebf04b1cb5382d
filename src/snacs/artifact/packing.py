"""Sparse weights in few bytes: which connections there are, and the numbers of those only.

A weight (c_out, c_in, …) is a table of connections with ``unit`` numbers each. Where connections
are kept is stored as one bit per possible connection, or as compressed rows: how many a row keeps,
and which, each in the narrowest unsigned integer. Whichever is smaller; and dense where it is not
worth it. "No number" means that all its bits are 0, so that what is read back equals what was
stored bit for bit.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from snacs.artifact.vocabulary import DTYPES
from snacs.errors import InputError
from snacs.values import BoolArray, IntArray

_NAMES = {dtype: name for name, dtype in DTYPES.items()}
_SEPARATOR = "|"  # cannot be part of a module's name, which is a Python identifier or a number


@dataclass(frozen=True, eq=False)
class Packed:
    """How one tensor is stored, and the parts it is stored in, by their name in the file."""

    description: dict[str, Any]
    parts: dict[str, Tensor]

    @property
    def size(self) -> int:
        return sum(part.numel() * part.element_size() for part in self.parts.values())


def pack(name: str, tensor: Tensor, keep: BoolArray | None = None) -> Packed:
    """Store a tensor in the smallest of all ways; with a mask ``keep``, so that it can be read."""
    dense = Packed({"kind": "dense"}, {name: tensor})
    if tensor.ndim < 2 or not tensor.is_floating_point() or not tensor.numel():
        return dense
    if keep is not None:
        return _smallest(name, tensor, keep)
    units = {math.prod(tensor.shape[2:]), 1}
    found = [dense, *(_smallest(name, tensor, _present(tensor, unit)) for unit in sorted(units))]
    return min(found, key=lambda packed: packed.size)


def unpack(description: Any, name: str, parts: Mapping[str, Tensor], *, most: int) -> Tensor:
    """The tensor again; ``most`` is the largest number of elements that is believable."""
    if not isinstance(description, dict):
        raise InputError(f"the tensor {name!r} is not described")
    kind = description.get("kind")
    if kind == "dense":
        return _part(parts, name)
    if kind not in ("bits", "rows"):
        raise InputError(f"the tensor {name!r} is stored in an unknown way")
    shape = _shape(description.get("shape"), name)
    if math.prod(shape) > most:
        raise InputError(f"the tensor {name!r} claims to have {math.prod(shape):.0e} numbers")
    unit = description.get("unit")
    rows = shape[0]
    width = math.prod(shape[1:])
    if not isinstance(unit, int) or isinstance(unit, bool) or unit < 1 or width % unit:
        raise InputError(f"the tensor {name!r} has connections of an impossible size")
    columns = width // unit
    read = _from_bits if kind == "bits" else _from_rows
    kept = read(name, parts, rows, columns)
    values = _part(parts, f"{name}{_SEPARATOR}values")
    dtype = DTYPES.get(str(description.get("dtype")))
    if values.dtype != dtype or values.shape != (len(kept) * unit,):
        raise InputError(f"the numbers of {name!r} do not fit its connections")
    tensor = torch.zeros(rows * columns, unit, dtype=dtype)
    tensor[torch.from_numpy(kept)] = values.reshape(-1, unit)
    return tensor.reshape(shape)


def mask_of(
    description: Mapping[str, Any], name: str, parts: Mapping[str, Tensor]
) -> BoolArray | None:
    """(c_out, c_in): which connections are stored; None for a dense tensor."""
    if description.get("kind") == "dense":
        return None
    shape = _shape(description.get("shape"), name)
    columns = math.prod(shape[1:]) // int(description["unit"])
    read = _from_bits if description["kind"] == "bits" else _from_rows
    keep = np.zeros(shape[0] * columns, dtype=bool)
    keep[read(name, parts, shape[0], columns)] = True
    return keep.reshape(shape[0], columns)


def _present(tensor: Tensor, unit: int) -> BoolArray:
    table = tensor.reshape(tensor.shape[0], -1, unit)
    # −0 equals 0 but has a bit of its own.
    found: BoolArray = ((table != 0) | table.signbit()).any(dim=2).numpy()
    return found


def _smallest(name: str, tensor: Tensor, keep: BoolArray) -> Packed:
    rows, columns = keep.shape
    unit = tensor.numel() // keep.size
    values = tensor.reshape(rows * columns, unit)[torch.from_numpy(keep.reshape(-1))]
    description = {
        "shape": list(tensor.shape),
        "unit": unit,
        "dtype": _NAMES[tensor.dtype],
    }
    bits = {"bits": np.packbits(keep)}
    counts = _bytes(keep.sum(axis=1), columns)
    table = {"counts": counts, "columns": _bytes(np.nonzero(keep)[1], columns - 1)}
    by_rows = sum(part.nbytes for part in table.values()) < bits["bits"].nbytes
    parts = {
        f"{name}{_SEPARATOR}{key}": torch.from_numpy(part)
        for key, part in (table if by_rows else bits).items()
    }
    parts[f"{name}{_SEPARATOR}values"] = values.reshape(-1).contiguous()
    return Packed({"kind": "rows" if by_rows else "bits", **description}, parts)


def _width(largest: int) -> str:
    return "<u1" if largest < 2**8 else "<u2" if largest < 2**16 else "<u4"


def _bytes(numbers: IntArray, largest: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Little-endian bytes, so that every machine reads the same file."""
    return np.frombuffer(numbers.astype(_width(largest)).tobytes(), dtype=np.uint8).copy()


def _numbers(name: str, part: Tensor, largest: int) -> IntArray:
    width = np.dtype(_width(largest))
    raw = _raw(name, part)
    if len(raw) % width.itemsize:
        raise InputError(f"the indices of {name!r} are cut")
    return np.frombuffer(raw.tobytes(), dtype=width).astype(np.int64)


def _from_bits(name: str, parts: Mapping[str, Tensor], rows: int, columns: int) -> IntArray:
    raw = _raw(name, _part(parts, f"{name}{_SEPARATOR}bits"))
    count = rows * columns
    if len(raw) != (count + 7) // 8 or np.unpackbits(raw)[count:].any():
        raise InputError(f"the bits of {name!r} do not fit its shape")
    return np.flatnonzero(np.unpackbits(raw, count=count))


def _from_rows(name: str, parts: Mapping[str, Tensor], rows: int, columns: int) -> IntArray:
    counts = _numbers(name, _part(parts, f"{name}{_SEPARATOR}counts"), columns)
    places = _numbers(name, _part(parts, f"{name}{_SEPARATOR}columns"), columns - 1)
    if len(counts) != rows or int(counts.sum()) != len(places) or (places >= columns).any():
        raise InputError(f"the rows of {name!r} do not fit its shape")
    kept: IntArray = np.repeat(np.arange(rows), counts) * columns + places
    if (np.diff(kept) <= 0).any():
        raise InputError(f"the rows of {name!r} are out of order")
    return kept


def _raw(name: str, part: Tensor) -> np.ndarray[Any, np.dtype[np.uint8]]:
    if part.dtype != torch.uint8 or part.ndim != 1:
        raise InputError(f"the indices of {name!r} are no bytes")
    found: np.ndarray[Any, np.dtype[np.uint8]] = part.numpy()
    return found


def _part(parts: Mapping[str, Tensor], name: str) -> Tensor:
    if name not in parts:
        raise InputError(f"the tensor {name!r} is missing")
    return parts[name]


def _shape(value: Any, name: str) -> tuple[int, ...]:
    plain = isinstance(value, list) and len(value) >= 2
    if not plain or not all(type(size) is int and size > 0 for size in value):
        raise InputError(f"the tensor {name!r} has no shape")
    return tuple(value)

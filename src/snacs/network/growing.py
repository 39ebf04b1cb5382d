"""Arrays that grow on disk: rows are appended as they come, and the file is a plain .npy."""

from __future__ import annotations

import shutil
import struct
from contextlib import suppress
from pathlib import Path
from types import TracebackType

import numpy as np

from snacs.values import FloatArray

# Room for the header of any shape: it is written last, when the number of rows is known.
_HEADER = 128


class GrowingArray:
    """A float32 array of shape (rows, *row) in ``path`` that never lives in memory."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows = 0
        self.row: tuple[int, ...] | None = None
        self._stream = path.open("wb")
        self._stream.write(bytes(_HEADER))

    def append(self, values: FloatArray) -> None:
        values = np.ascontiguousarray(values, dtype="<f4")
        if self.row is None:
            self.row = values.shape[1:]
        if values.shape[1:] != self.row:
            raise ValueError(f"rows of shape {values.shape[1:]} do not fit {self.row}")
        self._stream.write(values.tobytes())
        self.rows += len(values)

    def extend(self, other: GrowingArray) -> None:
        """Append all rows of another array that has been closed."""
        if other.row is None:
            return
        self.row = self.row or other.row
        with other.path.open("rb") as stream:
            stream.seek(_HEADER)
            shutil.copyfileobj(stream, self._stream)
        self.rows += other.rows

    def close(self) -> None:
        if self._stream.closed:
            return
        shape = (self.rows, *(self.row or ()))
        text = repr({"descr": "<f4", "fortran_order": False, "shape": shape})
        length = _HEADER - 10
        self._stream.seek(0)
        self._stream.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", length))
        self._stream.write(text.ljust(length - 1).encode() + b"\n")
        self._stream.close()

    def abandon(self) -> None:
        """Close without a header: the file is not wanted any more."""
        with suppress(OSError):  # a full disk fails again on what is still buffered
            self._stream.close()

    def __enter__(self) -> GrowingArray:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

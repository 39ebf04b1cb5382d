"""How the runtime's functions are compiled, and when compiled ones may be used again."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numba

_FILES = (
    "atomics.py",
    "exchange.py",
    "fields.py",
    "kernels.py",
    "planes.py",
    "sharing.py",
    "threads.py",
    "vectors.py",
)

# numba keeps compiled code by the age of one file, but functions here have those of other files
# compiled into them. Code of other sources must not be found.
_SOURCES = hashlib.sha256(
    b"".join((Path(__file__).parent / name).read_bytes() for name in _FILES)
).hexdigest()


def compiled(function: Any) -> Any:
    """Serial, without the interpreter's lock, kept on disk."""
    # A product and a sum may become one instruction: the same one in every run.
    made: Any = numba.njit(nogil=True, cache=True, error_model="numpy", fastmath={"contract"})(
        function
    )
    index: Any = getattr(getattr(made, "_cache", None), "_cache_file", None)
    if hasattr(index, "_source_stamp"):
        index._source_stamp = _SOURCES
    return made

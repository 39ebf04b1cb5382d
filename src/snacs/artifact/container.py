"""The file: safetensors with one JSON document in its metadata, sealed by a hash of every byte.

The hash stands in the header itself; it is computed with zeros in its place. It shows damage, not
forgery: whoever writes a file can seal it, so everything inside is still checked when it is read.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from snacs.errors import InputError
from snacs.files import write_file

FORMAT = "snacs-artifact"
_EMPTY = b"0" * 64
_OPENING = f'{{"format":"{FORMAT}","seal":"'
_PREFIX = b'{"__metadata__":{"snacs":"' + _OPENING.replace('"', '\\"').encode()
"""How the header begins. One entry of metadata only: safetensors writes several in any order."""
_PLACE = 8 + len(_PREFIX)
_LONGEST_HEADER = 100_000_000  # the limit of safetensors itself


def write(path: Path, document: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> int:
    """Write the file in one step and return its size in bytes."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)
    metadata = {"snacs": f'{_OPENING}{_EMPTY.decode()}","document":{text}}}'}
    content = bytearray(save(dict(tensors), metadata=metadata))
    if content[8:_PLACE] != _PREFIX:
        raise RuntimeError("this version of safetensors does not write metadata first")
    content[_PLACE : _PLACE + 64] = hashlib.sha256(content).hexdigest().encode()
    write_file(path, bytes(content))
    return len(content)


def read(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, Tensor], int]:
    """The document, all tensors and the size of a file; an :class:`InputError` for any other."""
    file = Path(path)
    if file.is_dir():
        raise InputError(f"{file} is a folder; give a file that snacs.save wrote.")
    try:
        content = bytearray(file.read_bytes())
    except FileNotFoundError as error:
        raise InputError(f"There is no file {file}.") from error
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error}.") from error
    _check_seal(file, content)
    try:
        header = json.loads(content[8 : 8 + _header_length(content)])
        document = json.loads(header["__metadata__"]["snacs"])["document"]
        tensors = load(bytes(content))
    except (SafetensorError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(
            f"{file} is sealed but cannot be read ({error}); save it again."
        ) from error
    if not isinstance(document, dict):
        raise InputError(f"{file} holds no description of a network.")
    return document, tensors, len(content)


def _check_seal(file: Path, content: bytearray) -> None:
    length = _header_length(content)
    # The first byte of a safetensors file is part of a length and can be anything.
    if content[:4] == b"PK\x03\x04" or (content[:1] == b"\x80" and content[8:9] != b"{"):
        raise InputError(
            f"{file} is a pickle (torch.save) or an archive. Opening a pickle can run any code in "
            "it, so snacs reads only its own files: write one with snacs.save."
        )
    if len(content) < 10 or not 2 <= length <= min(len(content) - 8, _LONGEST_HEADER):
        raise InputError(f"{file} is no snacs file, or its beginning or end is lost.")
    if content[8:_PLACE] != _PREFIX or length < len(_PREFIX) + 64:
        kind = "like plain safetensors weights" if content[8:9] == b"{" else "like another format"
        raise InputError(
            f"{file} was not written by snacs.save, or is damaged: it looks {kind}. Plain weights "
            "are loaded into a network by load_state_dict."
        )
    seal = bytes(content[_PLACE : _PLACE + 64])
    content[_PLACE : _PLACE + 64] = _EMPTY
    if hashlib.sha256(content).hexdigest().encode() != seal:
        raise InputError(
            f"{file} was cut or changed since it was saved: copy it again from where it came from."
        )


def _header_length(content: bytes | bytearray) -> int:
    return int.from_bytes(content[:8], "little")

"""One file per finished epoch, whole or not there; a damaged one is noticed and passed over.

The name of a file holds its epoch and the start of the SHA-256 of its content, so one atomic rename
both publishes a checkpoint and says how to verify it. Files are read with ``weights_only=True``:
nothing in them is executed.
"""

from __future__ import annotations

import hashlib
import io
import pickle
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from snacs.errors import RunFolderError
from snacs.files import write_file

KEPT = 2
"""Finished epochs that stay on disk: the last one, and one to fall back to."""
_NAME = re.compile(r"epoch-(\d{5})-([0-9a-f]{16})\.pt")


def save(folder: Path, epoch: int, state: Mapping[str, Any]) -> Path:
    """Write the state after ``epoch`` finished epochs and drop old ones."""
    stream = io.BytesIO()
    torch.save(dict(state), stream)
    content = stream.getvalue()
    path = folder / f"epoch-{epoch:05d}-{_digest(content)}.pt"
    write_file(path, content)
    for old in _files(folder)[KEPT:]:
        old.unlink(missing_ok=True)
    return path


def load(folder: Path, key: Mapping[str, Any]) -> tuple[dict[str, Any] | None, list[str]]:
    """The newest sound state in ``folder``, or None if there is none; and what was passed over.

    Raises
    ------
    RunFolderError
        If all checkpoints are damaged, or the state was made with another ``key``.
    """
    for half_written in folder.glob(".epoch-*"):
        half_written.unlink(missing_ok=True)  # left by a killed process
    files = _files(folder)
    damaged: list[str] = []
    for path in files:
        state = _read(path)
        if state is None:
            damaged.append(f"Checkpoint {path.name} is damaged and was passed over.")
            continue
        _check_key(folder, state.get("key"), key)
        return state, damaged
    if files:
        raise RunFolderError(
            f"All checkpoints in {folder} are damaged. Delete the folder to start again."
        )
    return None, []


def _read(path: Path) -> dict[str, Any] | None:
    try:
        content = path.read_bytes()
    except OSError:
        return None
    found = _NAME.fullmatch(path.name)
    if found is None or found.group(2) != _digest(content):
        return None
    try:
        state = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, ValueError, EOFError, KeyError):
        return None
    return state if isinstance(state, dict) else None


def _check_key(folder: Path, found: Any, wanted: Mapping[str, Any]) -> None:
    """Refuse a state that another run has made, and say what differs."""
    found = found if isinstance(found, Mapping) else {}
    differ = [
        f"{name} was {found.get(name)!r} and is now {value!r}"
        for name, value in wanted.items()
        if found.get(name) != value
    ]
    if differ:
        raise RunFolderError(
            f"The checkpoints in {folder} come from another run: {'; '.join(differ)}. Give another "
            "folder, or delete this one to start again."
        )


def _files(folder: Path) -> list[Path]:
    """Newest first. Two files of one epoch can only be the same epoch written twice."""
    found = [path for path in folder.glob("epoch-*.pt") if _NAME.fullmatch(path.name)]
    return sorted(found, key=lambda path: path.name, reverse=True)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def key_of(
    model: nn.Module, recipe: Mapping[str, Any], seed: int, chosen_by: str
) -> dict[str, Any]:
    """What a checkpoint must have been made from; plain types."""
    state = model.state_dict()
    shape = [(name, tuple(t.shape), str(t.dtype)) for name, t in state.items()]
    masks = hashlib.sha256()
    for name, tensor in state.items():
        if name.endswith(".keep") and tensor.dtype == torch.bool:
            masks.update(name.encode() + tensor.cpu().numpy().tobytes())
    recipe_items = {f"recipe.{name}": value for name, value in recipe.items()}
    return {
        "the network": hashlib.sha256(repr(shape).encode()).hexdigest()[:16],
        "the masks": masks.hexdigest()[:16],
        "seed": seed,
        "the choice of the result": chosen_by,
        **recipe_items,
    }


def sample(model: nn.Module) -> Tensor:
    """A few values of every parameter: enough to tell one start from another."""
    parts = [p.detach().reshape(-1)[:8].cpu().double() for p in model.parameters()]
    return torch.cat(parts)

"""Writing files so that a reader sees the old content or the new, never half of it."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from snacs.errors import InputError, RunFolderError


@contextmanager
def clear_disk_errors(path: Path) -> Iterator[None]:
    """Turn a full disk or a forbidden folder into an error that says what to do."""
    try:
        yield
    except OSError as error:
        reasons = {
            errno.ENOSPC: "the disk is full: free some space and run the same command again",
            errno.EDQUOT: "the disk quota is used up: free some space and run again",
            errno.EACCES: "this folder may not be written: choose another one",
            errno.EPERM: "this folder may not be written: choose another one",
            errno.EROFS: "this file system is read-only: choose another folder",
            errno.EEXIST: "something else stands there: move it away or choose another folder",
            errno.ENOTDIR: "something else stands there: move it away or choose another folder",
        }
        if error.errno not in reasons:
            raise
        raise RunFolderError(
            f"Could not write {path}: {reasons[error.errno]}. Nothing half-written was left."
        ) from error


def write_folder(folder: Path, fill: Callable[[Path], None]) -> None:
    """Let ``fill`` write into a fresh sibling folder, then swap it in for ``folder``."""
    with clear_disk_errors(folder):
        if folder.exists() and not folder.is_dir():
            raise InputError(f"{folder} is a file. Give the name of a folder to write.")
        folder.parent.mkdir(parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
        try:
            fill(fresh)
            for file in fresh.rglob("*"):
                if file.is_file():
                    _sync(file)
            fresh.chmod(0o755)
            if folder.exists():
                old = Path(tempfile.mkdtemp(prefix=f".{folder.name}.old.", dir=folder.parent))
                os.replace(folder, old)
                os.replace(fresh, folder)
                shutil.rmtree(old, ignore_errors=True)
            else:
                os.replace(fresh, folder)
        except BaseException:
            shutil.rmtree(fresh, ignore_errors=True)
            raise


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A new file beside ``path``, which takes its place in one step if all goes well."""
    with clear_disk_errors(path):
        if path.exists() and not path.is_file():
            raise InputError(f"{path} is a folder or a device. Give the name of a file to write.")
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        except FileNotFoundError as error:
            raise RunFolderError(
                f"Could not write {path}: no file can be made in {path.parent}. Choose another "
                "folder."
            ) from error
        os.close(handle)
        fresh = Path(name)
        try:
            yield fresh
            _sync(fresh)
            fresh.chmod(0o644)
            os.replace(fresh, path)
        finally:
            fresh.unlink(missing_ok=True)


def write_file(path: Path, content: bytes) -> None:
    """Replace a file in one step."""
    with replacing(path) as fresh:
        fresh.write_bytes(content)


def write_json(path: Path, value: Any) -> None:
    """Write JSON in one step, sorted and readable."""
    write_file(path, (json.dumps(value, indent=1, sort_keys=True) + "\n").encode())


def read_json(path: Path) -> Any:
    """Read JSON that may come from anywhere, with an error that names the file."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise InputError(f"{path} is not a readable JSON file: {error}") from error


def sha256_of(path: Path) -> str:
    """SHA-256 of a file's content."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _sync(file: Path) -> None:
    with file.open("rb") as stream:
        os.fsync(stream.fileno())

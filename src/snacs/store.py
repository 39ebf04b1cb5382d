"""The run folder: one file set per stage, written in one step, keyed by what it was made from.

A stage is a folder below the run folder. It appears whole or not at all, and holds ``stage.json``
with its key (a hash of everything it was made from) and the size and hash of every file. Asking for
a stage with the same key finds it; with another key it is made anew. Any run can therefore be
killed at any moment and started again with the same command: finished stages are found, the rest is
made, and the result has the same bits.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from filelock import FileLock, Timeout

from snacs.errors import InputError, RunFolderError
from snacs.files import clear_disk_errors, read_json, sha256_of, write_folder, write_json

FORMAT = "snacs-run"
VERSION = 1
_MARK = "run.json"
_STAGE = "stage.json"


def key_of(**parts: Any) -> str:
    """A hash of plain JSON values: what a stage was made from.

    >>> key_of(seed=1, score="l2") == key_of(score="l2", seed=1)
    True
    """
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def slug(index: int, name: str) -> str:
    """A folder name that is safe and unique for any layer name.

    >>> slug(3, "layer1.0.conv1"), slug(4, "<script>/../x")
    ('003-layer1.0.conv1', '004-_script_.._x')
    """
    return f"{index:03d}-{re.sub(r'[^A-Za-z0-9._-]+', '_', name)[:80]}"


class Run:
    """A run folder held by this process; use it as a context manager.

    Parameters
    ----------
    folder : path or None
        None makes a temporary folder that is removed at the end.
    """

    def __init__(self, folder: str | os.PathLike[str] | None) -> None:
        self._temporary = folder is None
        self.folder = Path(tempfile.mkdtemp(prefix="snacs-")) if folder is None else Path(folder)
        self._lock = FileLock(self.folder / ".lock")

    def __enter__(self) -> Self:
        with clear_disk_errors(self.folder):
            self._open()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._lock.release()
        if self._temporary:
            shutil.rmtree(self.folder, ignore_errors=True)

    def once(self, stage: str, key: str, fill: Callable[[Path], None]) -> Path:
        """The folder of a stage, made by ``fill(folder)`` unless it is there with this key."""
        folder = self.folder / stage
        if self.has(stage, key):
            return folder

        def fill_and_sign(fresh: Path) -> None:
            fill(fresh)
            paths = sorted(path for path in fresh.rglob("*") if path.is_file())
            files = {str(path.relative_to(fresh)): _sign(path) for path in paths}
            write_json(fresh / _STAGE, {"key": key, "files": files})

        write_folder(folder, fill_and_sign)
        return folder

    def has(self, stage: str, key: str) -> bool:
        """Whether a stage with this key is complete; a damaged one is an error, never used."""
        folder = self.folder / stage
        if not (folder / _STAGE).exists():
            if folder.exists():
                raise RunFolderError(_damaged(folder, f"{_STAGE} is missing"))
            return False
        try:
            mark = read_json(folder / _STAGE)
            files: Mapping[str, Mapping[str, Any]] = mark["files"]
            if mark["key"] != key:
                return False
            for name, sign in files.items():
                path = folder / name
                if not path.is_file() or path.stat().st_size != sign["bytes"]:
                    raise RunFolderError(_damaged(folder, f"{name} is missing or was cut"))
                if _sign(path) != sign:
                    raise RunFolderError(_damaged(folder, f"{name} was changed"))
        except (InputError, KeyError, TypeError, AttributeError) as error:
            raise RunFolderError(_damaged(folder, f"{_STAGE} cannot be read")) from error
        return True

    def note(self, **facts: Any) -> None:
        """Add facts (the command, the network, the data) to the run's own mark."""
        write_json(self.folder / _MARK, {**read_run(self.folder), **facts})

    def _open(self) -> None:
        if self.folder.exists() and not self.folder.is_dir():
            raise RunFolderError(f"{self.folder} is a file; give a folder for the run.")
        # A folder with nothing but a lock is new too: whoever made it got no further.
        if self.folder.exists() and any(not _ours_unfinished(p) for p in self.folder.iterdir()):
            read_run(self.folder)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except (FileNotFoundError, NotADirectoryError, FileExistsError) as error:
            raise RunFolderError(
                f"The run folder {self.folder} cannot be made ({error.strerror}). Give another one."
            ) from error
        try:  # the operating system lets go of the lock when its holder is killed
            self._lock.acquire(timeout=0)
        except Timeout as error:
            raise RunFolderError(
                f"The run folder {self.folder} is in use by another snacs process. Wait for it to "
                "end, or give another folder."
            ) from error
        if not (self.folder / _MARK).exists():
            write_json(self.folder / _MARK, {"format": FORMAT, "version": VERSION})
        for left in self.folder.rglob(".*.*"):  # from a process that was killed while writing
            if left.is_dir():
                shutil.rmtree(left, ignore_errors=True)
            else:
                left.unlink(missing_ok=True)


def _ours_unfinished(path: Path) -> bool:
    return path.name == ".lock" or path.name.startswith(f".{_MARK}.")


def read_run(folder: Path) -> dict[str, Any]:
    """The facts of a run folder; raises if it is not one of ours."""
    if not folder.is_dir():
        raise RunFolderError(f"There is no run folder {folder}.")
    try:
        mark = read_json(folder / _MARK)
    except FileNotFoundError as error:
        raise RunFolderError(
            f"{folder} is not a run folder of snacs: {_MARK} is missing. Nothing in it was "
            "touched; to begin a run give a new or empty folder."
        ) from error
    except InputError as error:
        raise RunFolderError(f"{error}. Give another folder.") from error
    if not isinstance(mark, dict) or mark.get("format") != FORMAT:
        raise RunFolderError(f"{folder / _MARK} was not written by snacs. Give another folder.")
    if mark.get("version") != VERSION:
        raise RunFolderError(
            f"{folder} was written by another version of snacs (format {mark.get('version')}, "
            f"this one reads {VERSION}). Give another folder."
        )
    return mark


def _sign(path: Path) -> dict[str, Any]:
    return {"bytes": path.stat().st_size, "sha256": sha256_of(path)}


def _damaged(folder: Path, what: str) -> str:
    return (
        f"The stage {folder} is damaged: {what}. Remove that folder and run the same command "
        "again, or give another run folder."
    )

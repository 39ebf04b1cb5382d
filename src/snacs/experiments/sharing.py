"""Run folders that several processes work in: one holds a folder at a time, others wait or go on.

Locks lie beside the folders, not in them, and the operating system lets go of them when their
holder is killed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from snacs.files import write_json
from snacs.reporting.progress import Watch
from snacs.store import FORMAT, VERSION, Run, read_run

_PATIENCE = 2.0  # seconds between two looks at a folder that another process holds


@contextmanager
def waiting(folder: Path, watch: Watch) -> Iterator[Run]:
    """Hold a run folder, after waiting for whoever holds it now."""
    while True:
        with trying(folder, _PATIENCE) as run:
            if run is not None:
                yield run
                return
        watch("waiting", 0, 1, f"another process works in {folder}")


@contextmanager
def trying(folder: Path, patience: float = 0.0) -> Iterator[Run | None]:
    """Hold a run folder, or get None if another process holds it."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder.parent / f"{folder.name}.lock")
    try:
        lock.acquire(timeout=patience)
    except Timeout:
        yield None
        return
    try:
        with Run(folder) as run:
            yield run
    finally:
        lock.release()


def mark(folder: Path, **facts: object) -> None:
    """Make a folder of run folders known as ours, with the command that made it."""
    known = read_run(folder) if folder.exists() and any(folder.iterdir()) else {}
    write_json(folder / "run.json", {"format": FORMAT, "version": VERSION, **known, **facts})

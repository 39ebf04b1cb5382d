"""What long work shows while it runs: bars in a terminal, plain lines in a log, or nothing.

Every room reports through one plain function, ``watch(stage, done, total)``; this file turns those
calls into something to look at.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

Watch = Callable[[str, int, int], None]
_LINE_EVERY = 10.0  # seconds between plain lines of one stage


def silent(stage: str, done: int, total: int) -> None:
    """Show nothing."""


@contextmanager
def watching(show: bool | Watch | None) -> Iterator[Watch]:
    """A watch for a block: the given one, none, or what fits where standard error goes.

    ``None`` shows bars in a terminal and nothing elsewhere; ``True`` shows plain lines elsewhere.
    """
    terminal = sys.stderr.isatty()
    if callable(show):
        yield show
    elif show is False or (show is None and not terminal):
        yield silent
    elif terminal:
        with _bars() as watch:
            yield watch
    else:
        yield _lines()


@contextmanager
def _bars() -> Iterator[Watch]:
    columns = (
        TextColumn("{task.description:<12}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(elapsed_when_finished=True),
    )
    with Progress(*columns, console=Console(stderr=True)) as progress:
        tasks: dict[str, object] = {}

        def watch(stage: str, done: int, total: int) -> None:
            if stage not in tasks:
                tasks[stage] = progress.add_task(stage, total=total)
            progress.update(tasks[stage], completed=done, total=total)  # type: ignore[arg-type]

        yield watch


def _lines() -> Watch:
    started: dict[str, float] = {}
    shown: dict[str, float] = {}

    def watch(stage: str, done: int, total: int) -> None:
        now = time.monotonic()
        started.setdefault(stage, now)
        if done < total and now - shown.get(stage, started[stage]) < _LINE_EVERY:
            return
        shown[stage] = now
        spent = now - started[stage]
        left = f", {spent / done * (total - done):.0f} s left" if 0 < done < total else ""
        sys.stderr.write(f"{stage}: {done}/{total}, {spent:.0f} s{left}\n")
        sys.stderr.flush()

    return watch

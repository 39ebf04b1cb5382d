"""What long work shows while it runs: bars in a terminal, plain lines in a log, or nothing.

Every room reports through one plain function, ``watch(stage, done, total)``; this file turns those
calls into something to look at.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)


class Watch(Protocol):
    """Told how far a stage is, with a few words such as the accuracy of an epoch."""

    def __call__(self, stage: str, done: int, total: int, detail: str = "") -> None: ...


_LINE_EVERY = 10.0  # seconds between plain lines of one stage


def silent(stage: str, done: int, total: int, detail: str = "") -> None:
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
        TextColumn("{task.fields[detail]}", markup=False),  # a layer may be called [red]
    )
    with Progress(*columns, console=Console(stderr=True)) as progress:
        tasks: dict[str, TaskID] = {}

        def watch(stage: str, done: int, total: int, detail: str = "") -> None:
            if stage not in tasks:
                # What is done already, because the work goes on from a checkpoint, took no time.
                tasks[stage] = progress.add_task(stage, total=total, completed=done, detail=detail)
            elif done < progress.tasks[tasks[stage]].completed:  # the stage of the next cell
                progress.reset(tasks[stage], total=total, completed=done)
            progress.update(tasks[stage], completed=done, total=total, detail=detail)

        yield watch


def _lines() -> Watch:
    started: dict[str, tuple[float, int]] = {}  # when, and how much was done by then
    shown: dict[str, float] = {}
    reached: dict[str, int] = {}

    def watch(stage: str, done: int, total: int, detail: str = "") -> None:
        now = time.monotonic()
        if done < reached.get(stage, done + 1):  # its first call, or the stage of the next cell
            started[stage] = now, done
            shown.pop(stage, None)
        reached[stage] = done
        began, first = started[stage]
        if done < total and now - shown.get(stage, began) < _LINE_EVERY:
            return
        shown[stage] = now
        spent = now - began
        left = (
            f", {spent / (done - first) * (total - done):.0f} s left"
            if first < done < total
            else ""
        )
        words = f", {detail}" if detail else ""
        sys.stderr.write(f"{stage}: {done}/{total}, {spent:.0f} s{left}{words}\n")
        sys.stderr.flush()

    return watch

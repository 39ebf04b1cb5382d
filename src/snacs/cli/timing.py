"""Time at hand: ``--budget 2h``, and a watch that ends the work when it is used up."""

from __future__ import annotations

import re
import time

from snacs.errors import InputError
from snacs.reporting.progress import Watch

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}


class OutOfTime(Exception):
    """The budget is used up; everything finished so far is kept."""


def seconds_of(text: str) -> float:
    """Seconds from 90s, 30m or 2h.

    >>> seconds_of("1.5h"), seconds_of("90s")
    (5400.0, 90.0)
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smh])", text.strip())
    seconds = float(found.group(1)) * _UNITS[found.group(2)] if found else 0.0
    if seconds <= 0:
        raise InputError(f"--budget takes a time like 90s, 30m or 2h. Got {text!r}.")
    return seconds


def until(seconds: float | None, watch: Watch) -> Watch:
    """The same watch, which raises :class:`OutOfTime` at the first report after ``seconds``."""
    if seconds is None:
        return watch
    end = time.monotonic() + seconds

    def limited(stage: str, done: int, total: int, detail: str = "") -> None:
        watch(stage, done, total, detail)
        if time.monotonic() > end:
            raise OutOfTime(f"The time is used up in {stage} ({done}/{total}).")

    return limited

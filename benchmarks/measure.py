"""How things are timed and told: best of several, with versions, seed and cores."""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from typing import Any

SEED = 0


@dataclass(frozen=True)
class Line:
    """One claim and what was measured for it.

    ``value`` is compared with ``target``: at least for ``better="higher"``, at most for
    ``"lower"``; a line without a target only informs.
    """

    name: str
    value: float
    unit: str
    target: float | None = None
    better: str = "higher"
    seconds: dict[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def holds(self) -> bool | None:
        if self.target is None:
            return None
        higher = self.better == "higher"
        return bool(self.value >= self.target if higher else self.value <= self.target)

    def text(self) -> str:
        """Two lines for people: the claim with its ratio, and the seconds behind it."""
        mark = {True: "holds ", False: "MISSED", None: "      "}[self.holds]
        sign = "≥" if self.better == "higher" else "≤"
        wanted = "" if self.target is None else f"  (wanted {sign} {_number(self.target)})"
        parts = [f"{name} {_number(value)} s" for name, value in self.seconds.items()]
        head = f"{mark} {self.name}: {_number(self.value)} {self.unit}{wanted}"
        below = "; ".join([*parts, *self.notes])
        return head + (f"\n       {below}" if below else "")

    def facts(self) -> dict[str, Any]:
        return {**asdict(self), "value": float(self.value), "holds": self.holds}


Clock = Callable[[], float]
WALL: Clock = time.perf_counter
CPU: Clock = time.process_time
"""Seconds that this process computed: for one-thread comparisons, whatever else is running."""


def best_of(repeats: int, function: Callable[[], Any], *, clock: Clock = WALL) -> float:
    """Seconds of the fastest of some calls, after one that is not timed."""
    function()
    return min(timed(function, clock=clock) for _ in range(repeats))


def timed(function: Callable[[], Any], *, clock: Clock = WALL) -> float:
    """Seconds of one call by some clock."""
    start = clock()
    function()
    return clock() - start


def machine() -> dict[str, Any]:
    """What the figures were taken on and with."""
    names = ("snacs", "numpy", "scipy", "numba", "scikit-learn", "torch")
    return {
        "python": platform.python_version(),
        **{name: version(name) for name in names},
        "processor": _processor(),
        "cores": os.cpu_count(),
        "load before": round(os.getloadavg()[0], 2),
        "seed": SEED,
        "command": " ".join(["python -m benchmarks", *sys.argv[1:]]),
    }


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as stream:  # noqa: PTH123
            for row in stream:
                if row.startswith("model name"):
                    return row.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _number(value: float) -> str:
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}" if value < 100 else f"{value:.0f}"

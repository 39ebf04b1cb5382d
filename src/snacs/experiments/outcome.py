"""What an experiment hands back: facts, tables, figures, and how it differs from the paper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Row = Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class Outcome:
    """One experiment.

    Attributes
    ----------
    facts : plain JSON.
    tables : rows by title; columns whose name ends in % hold fractions.
    differs : settings that are not the paper's, one sentence each.
    figures : files that were drawn.
    """

    facts: Mapping[str, Any]
    tables: Mapping[str, Sequence[Row]]
    differs: Sequence[str] = ()
    figures: Sequence[Path] = field(default_factory=list)


def markdown(outcome: Outcome, command: str, facts: Mapping[str, Any]) -> str:
    """The outcome as ``docs/results.md`` shows it: command, tables, what differs, versions."""
    parts = [f"    {command}\n"]
    for title, rows in outcome.tables.items():
        parts.append(f"{title}\n\n{table(rows)}\n")
    parts += [f"- {sentence}" for sentence in outcome.differs]
    made = ", ".join(f"{name} {value}" for name, value in facts["versions"].items())
    parts.append(f"\nSeed {facts['seed']}, {facts['minutes']:.1f} minutes; {made}.")
    return "\n".join(parts) + "\n"


def table(rows: Sequence[Row]) -> str:
    """Rows as a Markdown table; the columns are those of the first row.

    >>> print(table([{"method": "l2", "gone %": 0.5}, {"method": "l1", "gone %": None}]))
    | method | gone % |
    |---|---|
    | l2 | 50.00 |
    | l1 | – |
    """
    names = list(rows[0]) if rows else []
    lines = [f"| {' | '.join(names)} |", f"|{'---|' * len(names)}"]
    lines += [f"| {' | '.join(_cell(name, row[name]) for name in names)} |" for row in rows]
    return "\n".join(lines)


def _cell(name: str, value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value * 100:.2f}" if name.endswith("%") else f"{value:.4g}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return str(value).replace("|", "‖")

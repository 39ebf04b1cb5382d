"""Tables for the terminal: the same facts as in the files, for people."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from snacs.plans import Plan
from snacs.values import Structure

_BAR = 12
_LOG_WIDTH = 140


def show(*parts: RenderableType, console: Console | None = None) -> None:
    """Print renderables; in a log or a pipe they come out as plain text."""
    console = console or _console()
    for part in parts:
        console.print(part)


def _console() -> Console:
    """Standard output; wide enough for whole names where no terminal says how wide it is."""
    console = Console()
    if console.is_terminal or "COLUMNS" in os.environ:
        return console
    return Console(width=_LOG_WIDTH)


def structure_table(structure: Structure) -> Table:
    """Every layer: what would be pruned, what not, and why."""
    table = _table("Layers")
    for name in ("layer", "kind"):
        table.add_column(name, no_wrap=name == "layer")
    for name in ("filters × inputs", "kernel", "weights", "MACs"):
        table.add_column(name, justify="right")
    table.add_column("read by")
    table.add_column("verdict")
    for layer in structure:
        table.add_row(
            escape(layer.name),
            layer.kind + (f", {layer.groups} groups" if layer.groups > 1 else ""),
            f"{layer.c_out} × {layer.c_in}",
            str(layer.kernel),
            f"{layer.weights:,}",
            f"{layer.macs:,}",
            escape(_few(layer.consumers)),
            "prune" if layer.prunable else escape(f"keep: {layer.kept_because}"),
        )
    for left in structure.left_alone:
        table.add_row(
            escape(left.name), left.kind, "", "", "", "", "", escape(f"left alone: {left.reason}")
        )
    prunable = sum(layer.weights for layer in structure.prunable)
    table.caption = (
        f"{structure.weights:,} Conv + Linear weights, {structure.macs:,} MACs per image; "
        f"{prunable / max(structure.weights, 1):.1%} of the weights can be pruned"
    )
    return table


def plan_table(plan: Plan) -> Table:
    """Per layer: how much goes, why the limit stands where it does, what is protected."""
    table = _table("Plan")
    table.add_column("layer", no_wrap=True)
    for name in ("pruned", "of"):
        table.add_column(name, justify="right")
    table.add_column("", no_wrap=True)
    for name in ("limit", "SVM dense", "SVM then", "safe", "dead"):
        table.add_column(name, justify="right")
    planned = {part.layer.name: part for part in plan.layers}
    for layer in plan.structure:
        part = planned.get(layer.name)
        if part is None:
            table.add_row(escape(layer.name), "kept", f"{layer.connections:,}")
            continue
        curve = part.curve
        level = min(max(round(part.pruned * 100), 1), 99)
        table.add_row(
            escape(layer.name),
            f"{part.pruned:.1%}",
            f"{layer.connections:,}",
            _bar(part.pruned),
            f"{part.limit:.1%}",
            f"{curve.base:.1%}" if curve else "",
            f"{curve.accuracy[level - 1]:.1%}" if curve else "",
            str(int(part.protected.sum())),
            str(int(part.dead.sum())),
        )
    table.caption = _caption(plan)
    return table


def summary_table(facts: Mapping[str, Any]) -> Table:
    """Dense against pruned: weights, MACs, bytes, and accuracy after each measured step."""
    rows: list[dict[str, Any]] = [
        {"": "weights", "dense": facts["weights"], "pruned": facts["weights_kept"]},
        {"": "MACs per image", "dense": facts["macs"], "pruned": facts["macs_kept"]},
        {"": "MACs once compacted", "dense": facts["macs"], "pruned": facts["macs_compacted"]},
        {"": "bytes (float32, CSR)", "dense": facts["bytes"], "pruned": facts["bytes_csr"]},
    ]
    for row in rows:
        row["gone %"] = 1.0 - row["pruned"] / row["dense"]
    dense = facts["accuracy"].get("dense")
    for step, measured in facts["accuracy"].items():
        if step != "dense":
            lost = dense["fraction"] - measured["fraction"]
            words = [
                f"{found['fraction']:.2%} ± {found['error']:.2%}" for found in (dense, measured)
            ]
            name = f"accuracy, {step}"
            rows.append({"": name, "dense": words[0], "pruned": words[1], "gone %": lost})
    return cost_table("Dense and pruned", rows)


def compare_table(facts: Mapping[str, Any]) -> Table:
    """What ``snacs compare`` found, as in ``compare.json``."""
    names = {
        "method": "method",
        "target": "target %",
        "pruned": "weights gone %",
        "macs": "MACs gone %",
        "masked": "masked %",
        "batchnorm": "BatchNorm %",
        "repaired": "repaired %",
        "retrained": "retrained %",
        "error": "± %",
    }
    names = {name: title for name, title in names.items() if name in facts["cells"][0]}
    rows = [{title: cell[name] for name, title in names.items()} for cell in facts["cells"]]
    return cost_table(f"Comparison; the dense network has {facts['dense']:.2%}", rows)


def cost_table(title: str, rows: Sequence[Mapping[str, Any]]) -> Table:
    """Rows of plain facts as a table; the columns are those of the first row."""
    table = _table(title)
    for name, value in rows[0].items() if rows else ():
        table.add_column(name, justify="left" if isinstance(value, str) else "right", no_wrap=True)
    for row in rows:
        table.add_row(*(_cell(name, value) for name, value in row.items()))
    return table


def notes_text(notes: Sequence[str]) -> Text:
    """Notes as plain lines."""
    return Text("\n".join(f"Note: {note}" for note in notes), style="yellow")


def _table(title: str) -> Table:
    return Table(
        title=title,
        title_justify="left",
        caption_justify="left",
        show_edge=False,
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
    )


def _caption(plan: Plan) -> str:
    words = [f"{plan.pruned:.2%} of the weights and {plan.pruned_macs:.2%} of the MACs go"]
    if plan.threshold is not None:
        words.append(f"{plan.config.reading} SVM threshold {plan.threshold:.3f}")
    if plan.delta is not None:
        words.append(f"score threshold {plan.delta:.4g}")
    kept = [
        f"{layer.name} ({layer.kept_because})" for layer in plan.structure if not layer.prunable
    ]
    lines = [
        "; ".join(words),
        "of: connections; SVM then: its accuracy when pruned so far; safe: protected filters",
        *([f"Kept whole: {'; '.join(kept)}"] if kept else []),
    ]
    return escape("\n".join(lines))


def _bar(fraction: float) -> str:
    full = round(fraction * _BAR)
    return "█" * full + "·" * (_BAR - full)


def _few(names: Sequence[str], most: int = 2) -> str:
    more = f" +{len(names) - most}" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def _cell(name: str, value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.2%}" if "%" in name else f"{value:,.4g}"
    if isinstance(value, int):
        return f"{value:,}"
    return escape(str(value))

"""Terminal tables: every layer, every reason, and names from outside as plain text."""

from __future__ import annotations

import io

import numpy as np
from rich.console import Console

from snacs.config import Config, Goal
from snacs.plans import Plan
from snacs.reporting import terminal
from snacs.values import Curve, Layer, LayerPlan, LeftAlone, Structure

STRUCTURE = Structure(
    (
        Layer("stem", "Conv2d", 4, 3, 9, positions=64, kept_because="first layer"),
        Layer("[red]body[/red]", "Conv2d", 4, 4, 9, positions=64, consumers=("a", "b", "c")),
    ),
    left_alone=(LeftAlone("rnn", "LSTM", "recurrent"),),
)


def _text(*parts) -> str:
    stream = io.StringIO()
    terminal.show(*parts, console=Console(file=stream, width=200))
    return stream.getvalue()


def test_the_dry_run_names_all_layers_and_reasons():
    text = _text(terminal.structure_table(STRUCTURE))
    for word in (
        "stem",
        "keep: first layer",
        "[red]body[/red]",
        "a, b +1",
        "left alone: recurrent",
    ):
        assert word in text
    assert "252 Conv + Linear weights" in text
    assert "57.1%" in text


def test_the_plan_table_shows_what_goes_and_why():
    keep = np.ones((4, 4), dtype=bool)
    keep[0] = False
    keep[1, :2] = False
    body = STRUCTURE.layers[1]
    curve = Curve(np.arange(1, 100) / 100, np.linspace(0.99, 0.01, 99), 0.995)
    part = LayerPlan(body, keep, np.zeros((4, 4)), 0.4, np.arange(4) == 3, curve)
    plan = Plan(STRUCTURE, (part,), Goal(target=0.2), Config.preset(), 0.61, 0.25)
    text = _text(terminal.plan_table(plan))
    row = next(line for line in text.splitlines() if "body" in line)
    assert "37.5%" in row  # 6 of 16 connections
    assert "40.0%" in row  # the limit
    assert "62.0%" in row  # the curve at level 38
    assert row.replace("│", "").split()[-2:] == ["1", "1"]  # protected, dead
    assert "SVM threshold 0.610" in text
    assert "score threshold 0.25" in text


def test_plain_rows_become_a_table():
    rows = [{"method": "l2", "accuracy %": 0.915, "images": 1000, "note": None}]
    text = _text(terminal.cost_table("Comparison", rows), terminal.notes_text(["a note"]))
    for word in ("l2", "91.50%", "1,000", "Note: a note"):
        assert word in text

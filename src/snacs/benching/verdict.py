"""What the figures say, in words: what was gained, or plainly that nothing was, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from snacs.benching.contenders import DENSE, SPARSE

_GAIN = 1.05
"""A ratio below this is no speed-up."""

Rows = Sequence[Mapping[str, Any]]


def verdict(rows: Rows, layers: Rows) -> list[str]:
    """One sentence per batch size about the sparse runtime, and about compaction and onnxruntime.

    >>> dense = {"what": DENSE, "batch": 1, "speedup_best": 1.0, "ideal": 1.0, "of_ideal": 1.0}
    >>> print(*verdict([dense, {**dense, "what": SPARSE, "speedup_best": 0.9}], []))
    Batch 1: no speed-up by the sparse runtime (0.90×): no multiply-adds are gone.
    """
    notes = []
    for size in dict.fromkeys(row["batch"] for row in rows):
        here = {row["what"]: row for row in rows if row["batch"] == size}
        notes.append(_sparse(here, [row for row in layers if row["batch"] == size]))
    first = {row["what"]: row for row in rows if row["batch"] == rows[0]["batch"]}
    if "torch, compacted" in first and first["torch, compacted"]["ideal"] < 1.01:
        notes.append(
            "Compacting takes out nothing: no whole filter is dead. Dense libraries (torch, "
            "onnxruntime) cannot gain from these zeros; prune with granularity='filter' for them."
        )
    return notes


def _sparse(here: Mapping[str, Mapping[str, Any]], layers: Rows) -> str:
    ours = here[SPARSE]
    speedup, ideal = ours["speedup_best"], ours["ideal"]
    head = f"Batch {ours['batch']}: "
    if speedup >= _GAIN:
        text = (
            f"{head}the sparse runtime is {speedup:.2f}× as fast as dense torch "
            f"({ours['of_ideal']:.0%} of the ideal {ideal:.2f}×)"
        )
    else:
        text = f"{head}no speed-up by the sparse runtime ({speedup:.2f}×): {_why(ideal, layers)}"
    rival = here.get("onnxruntime, dense")
    if rival is not None:
        text += f"; {speedup / rival['speedup_best']:.2f}× dense onnxruntime"
    return text + "."


def _why(ideal: float, layers: Rows) -> str:
    if ideal < 1.005:
        return "no multiply-adds are gone"
    if ideal < 1.25:
        return f"only {1 - 1 / ideal:.0%} of the multiply-adds are gone"
    slow = sorted(layers, key=lambda row: row["seconds"], reverse=True)[:3]
    names = ", ".join(f"{row['name']} ({row['ideal']:.1f}× fewer)" for row in slow)
    return f"what is left is computed less efficiently than dense; most time goes to {names}"


__all__ = ["DENSE", "verdict"]

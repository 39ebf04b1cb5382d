"""A run as one plain JSON document: all that the page shows, and nothing it has to compute."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from math import isfinite
from typing import Any

import numpy as np

from snacs.plans import Plan
from snacs.reporting.flow import links_and_shortcuts
from snacs.reporting.folder import Findings
from snacs.reporting.pictures import mask_picture, score_picture, side_for
from snacs.reporting.words import bar_of, reasons, trust
from snacs.values import Curve, FloatArray, Layer, LayerPlan

_BINS = 40
_UNSAID = ("command", "network", "json", "quiet", "no_color")  # change no result, or said before


def document(found: Findings) -> dict[str, Any]:
    """Headline, layers, flow, training and comparison as plain JSON types."""
    plan, result = found.plan, found.result or {}
    facts = dict(plan.facts) if plan else dict(result.get("facts") or {})
    notes = (*found.notes, *result.get("notes", ()), *(plan.notes if plan else ()))
    shown = {
        "name": found.name,
        "command": command(found.arguments),
        "facts": facts,
        "config": plan.config.as_dict() if plan else {},
        "goal": _goal(plan) if plan else {},
        "notes": list(dict.fromkeys(notes)),
        "totals": _totals(plan, result) if plan else {},
        "accuracy": [{"step": step, **row} for step, row in found.accuracy.items()],
        "bench": [dict(row) for row in found.bench],
        "layers": _layers(found, plan, result) if plan else [],
        "flow": _flow(plan) if plan else {"links": [], "shortcuts": []},
        "left_alone": [
            {"name": left.name, "kind": left.kind, "reason": left.reason}
            for left in (plan.structure.left_alone if plan else ())
        ],
        "epochs": list(result.get("epochs") or ()),
        "repair": None if found.repair is None else dict(found.repair),
        "compare": None if found.compare is None else _comparison(found.compare),
    }
    return {name: plain(value) for name, value in shown.items()}


def _comparison(facts: Mapping[str, Any]) -> dict[str, Any]:
    """One row of numbers per method and target; single images and seeds stay in compare.json."""
    cells = [
        {name: value for name, value in cell.items() if not isinstance(value, dict | list)}
        for cell in facts["cells"]
    ]
    return {"dense": facts["dense"], "cells": cells}


def plain(value: Any) -> Any:
    """JSON knows no NaN and no infinity: they become null.

    >>> plain({"loss": [1.5, float("nan")], "steps": (1, float("inf"))})
    {'loss': [1.5, None], 'steps': [1, None]}
    """
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return None if isinstance(value, float) and not isfinite(value) else value


def command(arguments: Mapping[str, Any]) -> str:
    """The command line that a run was started with, from the arguments it noted.

    >>> command({"command": "prune", "network": "vgg16", "data": "my images", "target": 0.7})
    "snacs prune vgg16 --data 'my images' --target 0.7"
    """
    if "command" not in arguments:
        return ""
    words = ["snacs", str(arguments["command"])]
    words += [str(arguments["network"])] if arguments.get("network") else []
    for name, value in arguments.items():
        flag = "--" + name.replace("_", "-")
        if name in _UNSAID or value is None or value is False:
            continue
        if value is True:
            words.append(flag)
        elif isinstance(value, list):
            for item in value:
                words += [flag, str(item)]
        else:
            words += [flag, str(value)]
    return shlex.join(words)


def _goal(plan: Plan) -> dict[str, Any]:
    return {
        "target": plan.goal.target,
        "tolerance": plan.goal.tolerance,
        "budget": plan.goal.budget,
        "threshold": plan.threshold,
        "delta": plan.delta if plan.delta is not None and np.isfinite(plan.delta) else None,
        "reading": plan.config.reading,
    }


def _totals(plan: Plan, result: Mapping[str, Any]) -> dict[str, Any]:
    """Before and after, as stored; what only an outcome knows is missing without one."""
    structure = plan.structure
    kept = sum(row.weights for row in structure if not row.prunable)
    macs = sum(row.macs for row in structure if not row.prunable)
    kept += sum(part.kept * part.layer.kernel for part in plan.layers)
    macs += sum(part.kept * part.layer.kernel * part.layer.positions for part in plan.layers)
    known = {
        "pruned": plan.pruned,
        "weights": structure.weights,
        "weights_kept": kept,
        "macs": structure.macs,
        "macs_kept": macs,
    }
    names = (*known, "macs_compacted", "bytes", "bytes_csr", "bytes_csr_narrow", "divergence")
    return {**known, **{name: result[name] for name in names if result.get(name) is not None}}


def _layers(found: Findings, plan: Plan, result: Mapping[str, Any]) -> list[dict[str, Any]]:
    planned = {part.layer.name: part for part in plan.layers}
    costs = {row["name"]: row for row in result.get("layers", ())}
    side = side_for([part.keep.shape for part in plan.layers])
    rows = []
    for layer in plan.structure:
        part = planned.get(layer.name)
        row = _plain(layer, part, costs.get(layer.name, {}))
        if part is not None:
            row |= _explained(plan, part, found.candidates.get(layer.name, []), side)
        rows.append(row)
    return rows


def _plain(layer: Layer, part: LayerPlan | None, cost: Mapping[str, Any]) -> dict[str, Any]:
    kept = layer.weights if part is None else part.kept * layer.kernel
    alive = layer.c_out if part is None else layer.c_out - int(part.dead.sum())
    return {
        "name": layer.name,
        "kind": layer.kind,
        "c_out": layer.c_out,
        "c_in": layer.c_in,
        "kernel": layer.kernel,
        "groups": layer.groups,
        "connections": layer.connections,
        "weights": layer.weights,
        "weights_kept": kept,
        "macs": layer.macs,
        "macs_kept": kept * layer.positions,
        "macs_compacted": cost.get("macs_compacted"),
        "filters_left": cost.get("filters_left", alive),
        "pruned": 0.0 if part is None else part.pruned,
        "kept_because": layer.kept_because,
    }


def _explained(plan: Plan, part: LayerPlan, curves: list[Curve], side: int) -> dict[str, Any]:
    level, sentence = trust(part.occupancy)
    curve = part.curve
    return {
        "limit": part.limit,
        "protected": np.flatnonzero(part.protected).tolist(),
        "dead": int(part.dead.sum()),
        "why": reasons(plan, part),
        "trust": level,
        "trust_words": sentence,
        "occupancy": part.occupancy,
        "histogram": _histogram(part),
        "scores": score_picture(part.scores, side),
        "mask": mask_picture(part.keep, side),
        "curve": None if curve is None else {**_curve(curve), "bar": bar_of(plan, curve)},
        "candidates": [
            _curve(other) for other in curves if curve is not None and other.share != curve.share
        ],
    }


def _curve(curve: Curve) -> dict[str, Any]:
    return {
        "levels": _numbers(curve.levels),
        "accuracy": _numbers(curve.accuracy),
        "base": curve.base,
        "share": curve.share,
    }


def _histogram(part: LayerPlan) -> dict[str, Any]:
    """How many connections of each score went, stayed, or were protected; and where the cut is."""
    scores, safe = part.scores, np.broadcast_to(part.protected[:, None], part.keep.shape)
    edges = np.histogram_bin_edges(scores, bins=_BINS)
    gone, stayed = scores[~part.keep], scores[part.keep & ~safe]
    return {
        "edges": _numbers(edges),
        "pruned": np.histogram(gone, edges)[0].tolist(),
        "kept": np.histogram(stayed, edges)[0].tolist(),
        "protected": np.histogram(scores[part.keep & safe], edges)[0].tolist(),
        "cut": float(gone.max()) if gone.size else None,
        "least_kept": float(stayed.min()) if stayed.size else None,
    }


def _flow(plan: Plan) -> dict[str, Any]:
    links, shortcuts = links_and_shortcuts(plan.structure)
    return {"links": links, "shortcuts": shortcuts}


def _numbers(values: FloatArray) -> list[float | None]:
    """Six digits suffice to draw; NaN (a level that cannot be reached) is null in JSON."""
    return [round(float(v), 6) if np.isfinite(v) else None for v in values]

"""What a run folder holds, read for showing: nothing here is computed, only found and checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from snacs.errors import InputError, RunFolderError
from snacs.files import read_json, sha256_of
from snacs.plans import Plan
from snacs.store import read_run, slug
from snacs.values import Curve

STEPS = ("dense", "pruned", "repaired", "retrained")
"""Accuracy is measured after each of these, as far as a run goes."""


@dataclass(frozen=True, eq=False)
class Findings:
    """What is known about a run; everything but ``name`` may be missing.

    Attributes
    ----------
    result : dict or None
        The outcome, as in ``result.json``.
    arguments : dict
        The command line of the run, as in ``run.json``.
    candidates : dict
        By layer name, the curves of all shares of protected filters that were tried.
    compare : dict or None
        The outcome of ``snacs compare``, as in ``compare.json``.
    bench : sequence of dict
        Rows of a latency measurement, as in ``bench.json``.
    """

    name: str
    plan: Plan | None = None
    result: Mapping[str, Any] | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict)
    repair: Mapping[str, Any] | None = None
    candidates: Mapping[str, list[Curve]] = field(default_factory=dict)
    compare: Mapping[str, Any] | None = None
    bench: Sequence[Mapping[str, Any]] = ()
    notes: tuple[str, ...] = ()

    @property
    def accuracy(self) -> dict[str, dict[str, Any]]:
        """What was measured, in the order of the steps."""
        found = dict((self.result or {}).get("accuracy") or {})
        return {step: found[step] for step in (*STEPS, *found) if step in found}


def read_findings(folder: Path, *, compare: Path | None = None) -> Findings:
    """Read a run folder; the folder of one demo seed, which holds a ``run``, will do too.

    ``compare`` names another run folder, that of a ``snacs compare``, to show beside.
    """
    place = run_below(folder)
    mark = read_run(place)
    comparison = _optional(place / "compare.json")
    if compare is not None:
        comparison = _optional(run_below(compare) / "compare.json")
        if comparison is None:
            raise RunFolderError(f"{compare} holds no compare.json: `snacs compare` writes it.")
    plan = Plan.load(place / "plan") if (place / "plan" / "plan.json").exists() else None
    if plan is None and comparison is None:
        raise RunFolderError(f"{folder} holds no finished plan yet; run its command again.")
    result = _optional(place / "result.json") or _optional(folder / "result.json")
    notes: list[str] = []
    stale = result is not None and plan is not None and not _belongs(result, plan)
    if stale:
        notes.append("result.json belongs to another plan than the one in this folder: left out.")
        result = None
    arguments = mark.get("arguments")
    bench = _optional(place / "bench.json") or {}
    if bench and (stale or not _measured(bench, place / "pruned.safetensors")):
        notes.append("bench.json was measured with another network than this one: left out.")
        bench = {}
    given = arguments if isinstance(arguments, dict) else {}
    return Findings(
        name=str(given.get("network") or mark.get("network") or folder.resolve().name),
        plan=plan,
        result=result,
        arguments=given,
        repair=_optional(place / "repaired" / "repair.json") if result else None,
        candidates=_candidates(place, plan) if plan else {},
        compare=comparison,
        bench=bench.get("rows", ()),
        notes=tuple(notes),
    )


def run_below(folder: Path) -> Path:
    """The run folder itself, or the one that a demo keeps below; an error names the choices."""
    if (folder / "run.json").exists() or not folder.is_dir():
        return folder
    if (folder / "run" / "run.json").exists():
        return folder / "run"
    several = sorted(mark.parent.parent for mark in folder.glob("*/run/run.json"))
    if several:
        names = ", ".join(str(path) for path in several)
        raise RunFolderError(f"{folder} holds several runs; give one of them: {names}.")
    return folder


def _measured(bench: Mapping[str, Any], weights: Path) -> bool:
    """Whether times are of these weights, as far as they say which ones they are of."""
    known = bench.get("weights_sha256")
    return known is None or (weights.exists() and known == sha256_of(weights))


def _belongs(result: Mapping[str, Any], plan: Plan) -> bool:
    """Whether an outcome came from this plan: the same layers with as many weights kept."""
    kept = {layer.name: layer.weights for layer in plan.structure}
    kept |= {part.layer.name: part.kept * part.layer.kernel for part in plan.layers}
    try:
        return kept == {row["name"]: row["weights_kept"] for row in result["layers"]}
    except (KeyError, TypeError) as error:
        raise InputError(f"result.json was not written by this version of snacs: {error}") from None


def _candidates(run: Path, plan: Plan) -> dict[str, list[Curve]]:
    """The curves of all shares, from the one ``curves`` stage that holds the plan's own."""
    for stage in sorted((run / "curves").glob("*")):
        found: dict[str, list[Curve]] = {}
        for index, part in enumerate(plan.layers):
            curves = _curves(stage / slug(index, part.layer.name))
            mine = part.curve
            if mine is None or not any(
                curve.share == mine.share
                and np.array_equal(curve.accuracy, mine.accuracy, equal_nan=True)
                for curve in curves
            ):
                break
            found[part.layer.name] = curves
        else:
            return found
    return {}


def _curves(folder: Path) -> list[Curve]:
    facts = _optional(folder / "curves.json")
    if facts is None or not (folder / "curves.npz").exists():
        return []
    with np.load(folder / "curves.npz", allow_pickle=False) as arrays:
        return [
            Curve(arrays["levels"], arrays[f"accuracy{i}"], fact["base"], fact["share"])
            for i, fact in enumerate(facts)
        ]


def _optional(path: Path) -> Any:
    return read_json(path) if path.exists() else None

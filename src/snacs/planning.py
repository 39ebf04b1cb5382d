"""The stages of a plan: evidence, scores, curves, protection, limits, masks.

Each stage is asked of the run folder with a key made from everything it depends on; a stage that is
there is read instead of made. That is all there is to resuming.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from snacs.coupling import couple
from snacs.errors import TargetError
from snacs.files import read_json, write_json
from snacs.jobs import Job
from snacs.limits import (
    Allocation,
    allocate,
    choose_share,
    measure_curves,
    protected_rows,
    sensitivity,
)
from snacs.network.activations import gather_evidence, load_evidence
from snacs.network.layers import module_of, weight_of
from snacs.ordering import chosen_in_order, exchanged, importance_all, in_order
from snacs.parallel import ordered_map, worker_count
from snacs.plans import Plan
from snacs.scores import score
from snacs.selection import select
from snacs.store import slug
from snacs.streams import filter_scores
from snacs.values import BoolArray, Curve, Evidence, Layer, LayerPlan, Scores

T = TypeVar("T")

EVIDENCE_OPTIONS = ("samples", "positions", "batch")
SCORE_OPTIONS = (
    "score",
    "view",
    "support",
    "conditional",
    "hash",
    "directions",
    "width",
    "contribution_width",
    "shifts",
    "groups",
    "scaling",
)
MAGNITUDES = ("l1", "l2", "l2-activation")
"""Scores in the unit of an output, which squared are in that of its variance."""
CURVE_OPTIONS = ("classes", "shares", "protect", "sensitivity", "granularity")


def make_plan(job: Job) -> Plan:
    """Run all stages of a plan, or read those that are there."""
    key = job.plan_key
    if job.run.has(job.place, key):
        return Plan.load(job.run.folder / job.place)
    evidence = gather_all(job)
    scores = score_all(job, evidence)
    curves, rows = curves_all(job, evidence, scores)
    plan = decide(job, scores, curves, rows)
    if chosen_in_order(job.config):
        plan = in_order(job, plan)
    if job.config.exchange:
        plan = exchanged(job, plan)
    job.run.once(job.place, key, plan.write_into)
    return plan


def gather_all(job: Job) -> dict[str, Evidence]:
    """What every prunable layer shows on the calibration images, as memory-mapped arrays."""

    def fill(folder: Path) -> None:
        gather_evidence(
            job.model,
            job.structure,
            job.calibration,
            config=job.config,
            folder=folder,
            seed=job.seed,
            forward=job.forward,
            progress=lambda done, total: job.watch("evidence", done, total),
        )

    key = job.key(*EVIDENCE_OPTIONS)
    folder = job.run.once(f"evidence/{key[:12]}", key, fill)
    return load_evidence(folder, job.structure)


def score_all(job: Job, evidence: Mapping[str, Evidence]) -> dict[str, Scores]:
    """One score per connection of every prunable layer."""
    key = job.key(*EVIDENCE_OPTIONS, *SCORE_OPTIONS)
    if job.config.score == "information":
        worth = importance_all(job)
        evidence = {name: replace(e, importance=worth[name]) for name, e in evidence.items()}

    def save(result: Scores, folder: Path) -> None:
        np.save(folder / "values.npy", result.values, allow_pickle=False)
        write_json(folder / "occupancy.json", result.occupancy)

    def load(folder: Path) -> Scores:
        values = np.load(folder / "values.npy", allow_pickle=False)
        return Scores(values, read_json(folder / "occupancy.json"))

    return _per_layer(
        job,
        "scores",
        key,
        score,
        lambda layer, threads: {
            "evidence": evidence[layer.name],
            "config": job.config,
            "seed": job.seed,
            "threads": threads,
        },
        save,
        load,
        evidence,
    )


def curves_all(
    job: Job, evidence: Mapping[str, Evidence], scores: Mapping[str, Scores]
) -> tuple[dict[str, list[Curve]], dict[str, list[BoolArray]]]:
    """SVM curves of every layer, one for each candidate share of protected filters."""
    rows = {layer.name: _candidates(job, layer) for layer in job.structure.prunable}
    masks = {name: [mask for _, mask in candidates] for name, candidates in rows.items()}
    values = {name: result.values for name, result in scores.items()}
    if job.config.granularity == "filter":
        values = filter_scores(job.structure, values)
    asked = job.config.allocation == "svm" or job.config.shares or job.config.curves
    if not asked and job.goal.tolerance is None:
        return {}, masks

    def save(result: list[Curve], folder: Path) -> None:
        arrays = {f"accuracy{i}": curve.accuracy for i, curve in enumerate(result)}
        np.savez(folder / "curves.npz", allow_pickle=False, levels=result[0].levels, **arrays)
        facts = [{"base": curve.base, "share": curve.share} for curve in result]
        write_json(folder / "curves.json", facts)

    def load(folder: Path) -> list[Curve]:
        with np.load(folder / "curves.npz", allow_pickle=False) as arrays:
            return [
                Curve(arrays["levels"], arrays[f"accuracy{i}"], facts["base"], facts["share"])
                for i, facts in enumerate(read_json(folder / "curves.json"))
            ]

    curves = _per_layer(
        job,
        "curves",
        job.key(*EVIDENCE_OPTIONS, *SCORE_OPTIONS, *CURVE_OPTIONS),
        measure_curves,
        lambda layer, _: {
            "evidence": evidence[layer.name],
            "scores": values[layer.name],
            "protections": rows[layer.name],
            "config": job.config,
            "seed": job.seed,
        },
        save,
        load,
        evidence,
    )
    return curves, masks


def decide(
    job: Job,
    scores: Mapping[str, Scores],
    curves: Mapping[str, Sequence[Curve]],
    rows: Mapping[str, Sequence[BoolArray]],
) -> Plan:
    """Limits without protection, protection where the curve is higher, limits with it, masks."""
    notes = list(job.calibration.notes)
    first = _allocate(job, scores, curves, rows, dict.fromkeys(rows, 0))
    choice = {layer.name: _choose(job, layer, curves, first) for layer in job.structure.prunable}
    try:
        final = _allocate(job, scores, curves, rows, choice)
    except TargetError:
        if job.config.protect:
            raise
        choice = dict.fromkeys(rows, 0)
        notes.append("No filter is protected: with protection the target could not be reached.")
        final = first
    protected = {name: rows[name][index] for name, index in choice.items()}
    deciding = couple(
        job.structure,
        {name: result.values for name, result in scores.items()},
        final.counts,
        protected,
        power=job.config.coupling,
        squared=job.config.score in MAGNITUDES,
    )
    masks = select(
        job.structure,
        deciding,
        final.counts,
        protected,
        ties=job.config.ties,
        removed=final.removed,
    )
    layers = tuple(
        LayerPlan(
            layer,
            masks[layer.name],
            scores[layer.name].values,
            final.limits[layer.name],
            protected[layer.name],
            curves[layer.name][choice[layer.name]] if layer.name in curves else None,
            scores[layer.name].occupancy,
        )
        for layer in job.structure.prunable
    )
    return Plan(
        job.structure,
        layers,
        job.goal,
        job.config,
        final.threshold,
        final.delta,
        tuple(notes),
        {**job.facts, "seed": job.seed, "scores": _hash_of(scores)},
    )


def _allocate(
    job: Job,
    scores: Mapping[str, Scores],
    curves: Mapping[str, Sequence[Curve]],
    rows: Mapping[str, Sequence[BoolArray]],
    choice: Mapping[str, int],
) -> Allocation:
    return allocate(
        job.structure,
        {name: result.values for name, result in scores.items()},
        {name: candidates[choice[name]] for name, candidates in curves.items()},
        {name: candidates[choice[name]] for name, candidates in rows.items()},
        goal=job.goal,
        config=job.config,
    )


def _choose(
    job: Job, layer: Layer, curves: Mapping[str, Sequence[Curve]], first: Allocation
) -> int:
    """Index of the share to protect: the one given by hand, else the best at the same level."""
    if layer.name in job.config.protect or layer.name not in curves:
        return 1 if layer.name in job.config.protect else 0
    candidates = curves[layer.name]
    return list(candidates).index(choose_share(candidates, first.limits[layer.name]))


def _candidates(job: Job, layer: Layer) -> list[tuple[float, BoolArray]]:
    """(share, protected rows) to try for a layer; the first protects nobody."""
    nobody = (0.0, np.zeros(layer.c_out, dtype=bool))
    shares = (
        (job.config.protect[layer.name],)
        if layer.name in job.config.protect
        else ()
        if job.config.protect
        else job.config.shares
    )
    readers = [job.structure[name] for name in layer.consumers]
    importance = sensitivity(
        layer,
        [(reader, weight_of(module_of(job.model, reader), reader)) for reader in readers],
        job.config.sensitivity,
    )
    return [nobody, *((share, protected_rows(importance, share)) for share in shares)]


def _per_layer(
    job: Job,
    stage: str,
    key: str,
    function: Callable[..., T],
    arguments: Callable[[Layer, int], dict[str, Any]],
    save: Callable[[T, Path], None],
    load: Callable[[Path], T],
    evidence: Mapping[str, Evidence],
) -> dict[str, T]:
    """Run a function for every prunable layer that has no result with this key yet."""
    places = {
        layer.name: f"{stage}/{key[:12]}/{slug(index, layer.name)}"
        for index, layer in enumerate(job.structure.prunable)
    }
    missing = [p for p in job.structure.prunable if not job.run.has(places[p.name], key)]
    work = sum(len(evidence[p.name].outputs) * p.connections for p in missing)
    workers = worker_count(job.jobs, tasks=len(missing), work=work)
    threads = (job.jobs or 2) if workers == 1 else 1
    results = ordered_map(
        function, [arguments(layer, threads) for layer in missing], workers=workers
    )
    total = len(places)
    upcoming = [layer.name for layer in missing]
    job.watch(stage, total - len(missing), total, upcoming[0] if upcoming else "")
    for done, (layer, result) in enumerate(zip(missing, results, strict=True), 1):
        job.run.once(places[layer.name], key, lambda folder, r=result: save(r, folder))  # type: ignore[misc]
        now = upcoming[done] if done < len(upcoming) else ""
        job.watch(stage, total - len(missing) + done, total, now)
    return {name: load(job.run.folder / place) for name, place in places.items()}


def _hash_of(scores: Mapping[str, Scores]) -> str:
    digest = hashlib.sha256()
    for name, result in scores.items():
        digest.update(json.dumps(name).encode())
        digest.update(np.ascontiguousarray(result.values, dtype=np.float32).tobytes())
    return digest.hexdigest()

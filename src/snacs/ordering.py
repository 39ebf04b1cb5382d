"""Stages that need the network once more: what outputs are worth, choosing in order, exchanging."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from snacs.config import Config
from snacs.jobs import Job
from snacs.network.choosing import sequential_scores
from snacs.network.exchanging import exchange
from snacs.network.importance import output_importance
from snacs.plans import Plan
from snacs.scores.doubt import doubting
from snacs.scores.surgeon import surgeon
from snacs.selection import select
from snacs.values import FloatArray


def chosen_in_order(config: Config) -> bool:
    """Whether connections are chosen layer after layer, after the counts are known."""
    return (
        config.score == "information" and config.sequential and config.granularity == "connection"
    )


def importance_all(job: Job) -> dict[str, FloatArray]:
    """Importance of every filter of the prunable layers, from one backward pass."""

    def fill(folder: Path) -> None:
        found = output_importance(
            job.model,
            job.structure,
            job.calibration.batches,
            seed=job.seed,
            forward=job.forward,
            progress=lambda done, total: job.watch("importance", done, total),
        )
        arrays = {str(i): found[layer.name] for i, layer in enumerate(job.structure.prunable)}
        np.savez(folder / "importance.npz", allow_pickle=False, **arrays)

    key = job.key("batch")
    folder = job.run.once(f"importance/{key[:12]}", key, fill)
    with np.load(folder / "importance.npz", allow_pickle=False) as arrays:
        return {layer.name: arrays[str(i)] for i, layer in enumerate(job.structure.prunable)}


def in_order(job: Job, plan: Plan) -> Plan:
    """The same plan, as many connections of every layer, but chosen one layer after the other."""
    importance = importance_all(job)
    found, notes = sequential_scores(
        job.model,
        job.calibration.batches,
        plan.masks,
        structure=plan.structure,
        score=doubting(surgeon, job.config.doubt),
        importance=importance,
        protected={part.layer.name: part.protected for part in plan.layers},
        least_squares=job.config.repair,
        silence=job.config.silence,
        ridge=job.config.ridge,
        forward=job.forward,
        progress=lambda done, total, name: job.watch("choice", done, total, name),
    )
    return _rescored(job, plan, found, notes)


def exchanged(job: Job, plan: Plan) -> Plan:
    """The same plan, as many connections of every layer, after an exchange of some of them."""
    if job.lesson is None:
        raise RuntimeError("There are no images to exchange connections on.")
    found, notes = exchange(
        job.model,
        job.lesson.batches,
        plan.masks,
        {part.layer.name: part.scores for part in plan.layers},
        protected={part.layer.name: part.protected for part in plan.layers},
        forward=job.forward,
        progress=lambda done, total, words: job.watch("exchange", done, total, words),
    )
    if len(job.lesson) < job.config.exchange:
        asked = f"{job.config.exchange:,}"
        notes.append(f"There were {len(job.lesson):,} images to exchange on, not {asked}.")
    # A threshold was one of the scores from before.
    return replace(_rescored(job, plan, found, notes), delta=None)


def _rescored(job: Job, plan: Plan, found: Mapping[str, FloatArray], notes: Sequence[str]) -> Plan:
    """The same counts by other scores, where there are any."""
    scores = {part.layer.name: found.get(part.layer.name, part.scores) for part in plan.layers}
    masks = select(
        plan.structure,
        scores,
        {part.layer.name: part.layer.connections - part.kept for part in plan.layers},
        {part.layer.name: part.protected for part in plan.layers},
        ties=job.config.ties,
    )
    layers = tuple(
        replace(part, keep=masks[part.layer.name], scores=scores[part.layer.name])
        for part in plan.layers
    )
    return replace(plan, layers=layers, notes=(*plan.notes, *notes))

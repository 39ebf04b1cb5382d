"""Run folders for the tests of reports: plans made by hand, with all that a run can hold."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import numpy as np

from snacs.config import Config, Goal
from snacs.files import write_json
from snacs.network.cost import cost
from snacs.plans import Plan
from snacs.store import Run, slug
from snacs.values import (
    NETWORK_INPUT,
    Curve,
    Layer,
    LayerPlan,
    LeftAlone,
    Segment,
    Structure,
)

HOSTILE = "<script>window.hacked=1</script>\"'><img src=x onerror=window.hacked=1>&amp;$x^2$"
FORMULA = '=cmd|"/c calc"!A1'


def make_plan(widths=(8, 12, 12, 16), *, seed=0, names=None, informative=0.9) -> Plan:
    """A chain of convolutions between a kept stem and a kept classifier, with a shortcut each."""
    rng = np.random.default_rng(seed)
    names = list(names or (f"body.{index}" for index in range(len(widths))))
    layers = [
        Layer(
            "stem", "Conv2d", widths[0], 3, 9, positions=64,
            feeds=(Segment(NETWORK_INPUT, 0, 0, 3),), kept_because="first layer",
        )
    ]  # fmt: skip
    for index, (name, width) in enumerate(zip(names, widths, strict=True)):
        before = layers[-1]
        feeds = [Segment(before.name, 0, 0, before.c_out)]
        if index > 1 and layers[-2].c_out == before.c_out:
            feeds.append(Segment(layers[-2].name, 0, 0, before.c_out))
        layers.append(
            Layer(name, "Conv2d", width, before.c_out, 9, positions=64, feeds=tuple(feeds))
        )
    last = layers[-1]
    layers.append(
        Layer(
            "head", "Linear", 10, last.c_out, 1, feeds=(Segment(last.name, 0, 0, last.c_out),),
            kept_because="final classifier",
        )
    )  # fmt: skip
    structure = Structure(
        tuple(layers), left_alone=(LeftAlone("rnn", "LSTM", "recurrent"),),
        outputs=(Segment("head", 0, 0, 10),),
    )  # fmt: skip
    parts = tuple(_part(layer, rng, informative) for layer in structure.prunable)
    facts = {"seed": seed, "model": "0" * 64, "images": "1" * 64, "versions": {"snacs": "0.1.0"}}
    return Plan(structure, parts, Goal(target=0.5), Config.preset(), 0.8, None, ("a note",), facts)


def _part(layer: Layer, rng: np.random.Generator, informative: float) -> LayerPlan:
    scores = rng.gamma(2.0, 0.1, (layer.c_out, layer.c_in)).astype(np.float32)
    protected = np.zeros(layer.c_out, dtype=bool)
    protected[rng.integers(0, layer.c_out)] = True
    limit = float(rng.uniform(0.2, 0.7))
    free = np.where(protected[:, None], np.inf, scores)
    gone = np.argsort(free, axis=None, kind="stable")[: int(limit * scores.size)]
    keep = np.ones(scores.size, dtype=bool)
    keep[gone] = False
    return LayerPlan(
        layer, keep.reshape(scores.shape), scores, limit, protected, make_curve(limit),
        {
            "cells_z": 17.0, "mean_cell": 20.0, "singletons": 1 - informative,
            "informative": informative, "bins_x": 9.0, "bins_y": 4.0,
        },
    )  # fmt: skip


def make_curve(limit: float, share: float = 0.1) -> Curve:
    levels = np.arange(1, 100) / 100
    accuracy = 0.95 / (1 + np.exp((levels - limit) * 12 - 2))
    accuracy[95:] = np.nan  # levels that protection makes unreachable
    return Curve(levels, accuracy, 0.93, share)


def make_run(
    folder: Path, plan: Plan | None = None, *, compare: bool = True, bench: bool = True
) -> Path:
    """All files that a finished run with retraining and a comparison leaves behind."""
    plan = plan or make_plan()
    with Run(folder) as run:
        run.note(
            arguments={
                "command": "prune", "network": "my net", "data": "digits", "target": 0.5,
                "weights": "/tmp/w.safetensors", "quiet": True, "set": ["shifts=8"],
            }
        )  # fmt: skip
        plan.save(folder / "plan")
        for index, part in enumerate(plan.layers):
            place = folder / "curves" / "0123456789ab" / slug(index, part.layer.name)
            place.mkdir(parents=True)
            curves = [make_curve(part.limit * 0.9, 0.0), part.curve]
            arrays = {f"accuracy{i}": curve.accuracy for i, curve in enumerate(curves)}
            np.savez(place / "curves.npz", levels=curves[0].levels, **arrays)
            facts = [{"base": curve.base, "share": curve.share} for curve in curves]
            write_json(place / "curves.json", facts)
    write_json(folder / "result.json", result_of(plan))
    errors = [{"name": p.layer.name, "before": 0.3, "after": 0.05} for p in plan.layers]
    step = {"name": "least squares", "before": 2.0, "after": 0.2, "kept": True, "seconds": 1.5}
    write_json(
        folder / "repaired" / "repair.json",
        {"layers": errors, "steps": [step], "images": 100, "notes": []},
    )
    if compare:
        write_json(folder / "compare.json", comparison())
    if bench:
        rows = [{"runtime": "torch, dense", "batch": 1, "milliseconds": 3.25}]
        write_json(folder / "bench.json", {"rows": rows})
    return folder


def result_of(plan: Plan) -> dict:
    """What ``Pruned.facts()`` gives, with accuracies and epochs made up."""
    found = cost(plan.structure, plan.masks)
    steps = {"dense": 0.9371, "pruned": 0.4142, "repaired": 0.8888, "retrained": 0.9299}
    return {
        "pruned": found.pruned,
        "weights": found.weights,
        "weights_kept": found.weights_kept,
        "macs": found.macs,
        "macs_kept": found.macs_kept,
        "macs_compacted": found.macs_compacted,
        "bytes": found.dense_bytes,
        "bytes_csr": found.csr_bytes,
        "bytes_csr_narrow": found.csr_bytes_narrow,
        "index_bytes": list(found.index_bytes),
        "accuracy": {k: {"fraction": v, "n": 1000, "error": 0.01} for k, v in steps.items()},
        "divergence": {"masked": 2.0, "repaired": 0.2},
        "epochs": [
            {
                "epoch": epoch, "loss": 1 / epoch, "accuracy": 0.8 + 0.02 * epoch,
                "validation": 0.79 + 0.02 * epoch, "learning_rate": 0.1, "seconds": 1.0,
            }
            for epoch in range(1, 6)
        ],
        "layers": [asdict(row) for row in found.layers],
        "notes": ["a note"],
        "facts": plan.facts,
    }  # fmt: skip


def comparison() -> dict:
    """What ``snacs compare`` writes."""
    cells = [
        {
            "method": method, "target": target, "pruned": target, "macs": target - 0.05,
            "masked": 0.9 - target * loss, "batchnorm": 0.92 - target * loss,
            "repaired": 0.94 - target * loss / 2, "error": 0.008,
        }
        for method, loss in (("random", 0.8), ("l2", 0.3), (HOSTILE, 0.2))
        for target in (0.4, 0.6)
    ]  # fmt: skip
    return {"dense": 0.937, "cells": cells}

"""The paper's main table: how much goes, and how accurate the network still is.

The presets are carried through plan, repair and retraining at one target; beside them stand the
paper's rows, and what the limits that it prints cost on the same architecture.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from snacs.connections import count_at, most_prunable
from snacs.experiments.cells import STAGES, Bench, Cell
from snacs.experiments.compare import compare
from snacs.experiments.gammas import paper_limits
from snacs.experiments.measuring import estimate
from snacs.experiments.outcome import Outcome
from snacs.experiments.plots_main import draw_main
from snacs.experiments.published import BASELINES, SNACS, TARGETS
from snacs.network.cost import Cost, cost
from snacs.values import Structure

MEGABYTE = 1e6
CIFAR_TEST = 10_000
"""All test images: the second half of them is what nothing was chosen on."""


def reproduce_main(
    bench: Bench, *, target: float | None = None, presets: Sequence[str], seed: int = 0
) -> Outcome:
    """All presets at one target (near the paper's), with its rows beside where it has some."""
    network = bench.material.network
    chosen = TARGETS.get(network, 0.7) if target is None else target
    cells = compare(bench, targets=[chosen], methods=presets, seed=seed)
    structure = bench.job(seed).structure
    dense = bench.dense_measured
    rows = [_row(cell, bench) for cell in cells]
    limits = _limits_rows(network, structure) if network in SNACS else []
    dense_words = f"{len(dense.right)} test images ({bench.material.half}), dense"
    tables = {
        f"{network}, pruned at {chosen:.1%}; {dense_words} {dense.right.mean():.2%}": rows,
    }
    if network in SNACS:
        tables[f"The paper: dense {BASELINES[network]:.2%}"] = _published(network)
        tables["The limits γ that the paper prints, on our network"] = limits
    facts = {
        "network": network,
        "target": chosen,
        "dense": dense.facts(),
        "half": bench.material.half,
        "cells": [cell.as_dict() for cell in cells],
        "limits": limits,
    }
    said = min(SNACS.get(network, ()), key=lambda row: abs(row.pruned - chosen), default=None)
    figures = draw_main(
        cells,
        float(dense.right.mean()),
        said,
        bench.folder,
        same_data=bench.material.data.startswith("cifar10"),
    )
    return Outcome(facts, tables, _differs(bench, network), figures)


def apply_limits(structure: Structure, limits: Mapping[str, float]) -> Cost:
    """What a network costs when every layer loses the given fraction of its connections.

    Which connections go does not matter for weights, MACs and CSR bytes.
    """
    masks = {}
    for layer in structure.prunable:
        count = min(
            count_at(limits.get(layer.name, 0.0), layer.connections),
            most_prunable(layer.connections),
        )
        keep = np.ones(layer.connections, dtype=bool)
        keep[:count] = False
        masks[layer.name] = keep.reshape(layer.c_out, layer.c_in)
    return cost(structure, masks)


def _row(cell: Cell, bench: Bench) -> dict[str, Any]:
    last = [stage for stage in STAGES if stage in cell.stages][-1]
    found = cell.stages[last]
    row: dict[str, Any] = {
        "preset": cell.method,
        "pruned %": cell.facts["pruned"],
        "MACs gone %": cell.facts["macs"],
    }
    row |= {f"{stage} %": float(cell.stages[stage].right.mean()) for stage in cell.stages}
    row["± %"] = estimate(found.right).error
    if len(found.right) == CIFAR_TEST and bench.material.data.startswith("cifar10"):
        row["report half %"] = float(found.right[len(found.right) // 2 :].mean())
    if len(bench.material.classes) < bench.dense[0].shape[1]:
        row["among classes %"] = float(found.among.mean())
    divergence = estimate(found.divergence)
    row["KL from dense"] = f"{divergence.mean:.4f} ± {divergence.error:.4f}"
    row["CSR MB"] = cell.facts["bytes_csr"] / MEGABYTE
    row["dense MB"] = cell.facts["bytes"] / MEGABYTE
    return row


def _published(network: str) -> list[dict[str, Any]]:
    return [
        {
            "method": found.method,
            "pruned %": found.pruned,
            "MACs gone %": found.macs,
            "accuracy %": found.accuracy,
        }
        for found in SNACS[network]
    ]


def _limits_rows(network: str, structure: Structure) -> list[dict[str, Any]]:
    """Cost of the printed lists, with what the paper says of them."""
    rows = []
    for sensitivity in (False, True) if network == "resnet56" else (False,):
        found = apply_limits(structure, paper_limits(network, sensitivity=sensitivity))
        said = SNACS[network][-1 if sensitivity or network == "resnet50" else 0]
        rows.append(
            {
                "list": f"γ{' with sensitivity' if sensitivity else ''}",
                "pruned %": found.pruned,
                "paper %": said.pruned,
                "MACs gone %": 1 - found.macs_kept / found.macs,
                "paper's MACs %": said.macs,
                "CSR MB": found.csr_bytes / MEGABYTE,
                "dense MB": found.dense_bytes / MEGABYTE,
            }
        )
    return rows


def _differs(bench: Bench, network: str) -> list[str]:
    recipe = bench.recipe
    taught = recipe is not None and recipe.distillation > 0
    found = [
        "No retraining; the paper retrains for 300 epochs (ResNet50: 100)."
        if recipe is None
        else f"{recipe.epochs} epoch(s) of retraining at a rate of {recipe.learning_rate:g} "
        f"({recipe.schedule}{', the dense network teaches' if taught else ''}); "
        "the paper: 300 (ResNet50: 100) from 0.1 in steps, label smoothing. "
        "'paper' is retrained from its masks, as published; 'default' from its repaired weights.",
        f"{bench.material.count} calibration images; the paper does not give its number.",
    ]
    if network == "resnet50":
        found.append(
            "Ten ImageNet classes (Imagenette) in place of ILSVRC2012; stride 2 on the first 1×1 "
            "of a stage, the paper's MACs fit strides on the 3×3."
        )
    if network == "vgg16":
        found.append("No reading of the paper's γ list gives the 96.16 % of its table.")
    return found

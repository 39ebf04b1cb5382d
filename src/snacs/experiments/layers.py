"""How much does each layer give? SNACS and MINT side by side, and whether they agree.

MINT here is its score under one threshold for all layers. The paper took MINT's limits from
earlier work and found hardly any correlation with its own.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.stats import spearmanr

from snacs.config import Config
from snacs.experiments.cells import Bench
from snacs.experiments.gammas import paper_limits
from snacs.experiments.methods import MINT_GROUPS, Method, method_of
from snacs.experiments.outcome import Outcome
from snacs.experiments.plots import draw_layers
from snacs.experiments.published import SNACS, TARGETS
from snacs.plans import Plan


def reproduce_layers(bench: Bench, *, target: float | None = None, seed: int = 0) -> Outcome:
    """Fraction pruned of every layer, by preset and by MINT, at one target."""
    network, count = bench.material.network, bench.material.count
    chosen = TARGETS.get(network, 0.7) if target is None else target
    mint = method_of("mint-global", count=count)
    options = {**mint.options, "samples": "pooled"}
    config = Config.preset("default", **options)
    methods = {
        "default": method_of("default", count=count),
        "paper": method_of("paper", count=count),
        "MINT": Method("mint-pooled-global", config, options),
    }
    plans = {name: bench.plan(method, chosen, seed) for name, method in methods.items()}
    series = {name: _limits(plan) for name, plan in plans.items()}
    layers = plans["default"].structure.prunable
    if network in SNACS:
        printed = paper_limits(network)
        series["γ as printed"] = [printed[layer.name] for layer in layers]
    numbers = [plans["default"].structure.layers.index(layer) + 1 for layer in layers]
    rows = [
        {"layer": number, "name": layer.name}
        | {f"{name} %": float(values[index]) for name, values in series.items()}
        for index, (number, layer) in enumerate(zip(numbers, layers, strict=True))
    ]
    pairs = [(a, b) for i, a in enumerate(series) for b in list(series)[i + 1 :]]
    agreement: list[dict[str, Any]] = [
        {
            "between": f"{a} and {b}",
            "Pearson": _pearson(series[a], series[b]),
            "Spearman": _spearman(series[a], series[b]),
        }
        for a, b in pairs
    ]
    figures = draw_layers(numbers, series, bench.folder, network)
    differs = [
        f"MINT: its spanning-tree score with G = {MINT_GROUPS} groups on spatial means, one "
        "threshold for all layers; the paper's MINT had limits from earlier work, shown in a "
        "figure only.",
        f"All at {chosen:.1%} of the weights; the paper's MINT rows prune less.",
    ]
    facts = {"target": chosen, "series": series, "numbers": numbers, "agreement": agreement}
    return Outcome(
        facts,
        {f"{network}: pruned of each layer": rows, "Correlation over layers": agreement},
        differs,
        figures,
    )


def _limits(plan: Plan) -> list[float]:
    return [part.pruned for part in plan.layers]


def _pearson(ours: list[float], theirs: list[float]) -> float | None:
    if np.std(ours) == 0 or np.std(theirs) == 0:
        return None
    return float(np.corrcoef(ours, theirs)[0, 1])


def _spearman(ours: list[float], theirs: list[float]) -> float | None:
    if np.std(ours) == 0 or np.std(theirs) == 0:
        return None
    return float(spearmanr(ours, theirs).statistic)

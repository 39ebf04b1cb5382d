"""Does protecting sensitive filters help? With and without, and the limits of every layer."""

from __future__ import annotations

from typing import Any

from snacs.experiments.cells import Bench
from snacs.experiments.compare import compare, summary
from snacs.experiments.gammas import paper_limits
from snacs.experiments.methods import Method, preset_method
from snacs.experiments.outcome import Outcome
from snacs.experiments.plots import draw_sensitivity
from snacs.experiments.published import SNACS, TARGETS

WITHOUT, WITH = "without", "with"


def protections(count: int) -> dict[str, Method]:
    """The paper preset without and with the search for a share of protected filters."""
    return {
        WITHOUT: preset_method("paper-unprotected", "paper", count=count, shares=()),
        WITH: preset_method("paper", "paper", count=count),
    }


def reproduce_sensitivity(bench: Bench, *, target: float | None = None, seed: int = 0) -> Outcome:
    """Both ways at one target: accuracy, and the table of limits."""
    network = bench.material.network
    chosen = TARGETS.get(network, 0.7) if target is None else target
    methods = protections(bench.material.count)
    cells = compare(bench, targets=[chosen], methods=list(methods.values()), seed=seed)
    found = summary(cells, against=methods[WITHOUT].name)
    last = bench.stages[-1]
    rows: list[dict[str, Any]] = []
    for way, row in zip(methods, found, strict=True):
        shown: dict[str, Any] = {"protection": way, "pruned %": row["pruned"]}
        shown |= {f"{stage} %": row[stage] for stage in bench.stages}
        shown["± %"] = row["error"]
        difference = row["differences"][last]
        shown["difference"] = f"{difference[0] * 100:+.2f} ± {difference[1] * 100:.2f}"
        said = SNACS.get(network, ())
        beside = said[min(len(rows), len(said) - 1)] if network == "resnet56" else None
        shown["paper pruned %"] = None if beside is None else beside.pruned
        shown["paper accuracy %"] = None if beside is None else beside.accuracy
        rows.append(shown)
    plans = {way: bench.plan(method, chosen, seed) for way, method in methods.items()}
    printed = {
        way: paper_limits(network, sensitivity=way == WITH) if network == "resnet56" else {}
        for way in methods
    }
    limits: list[dict[str, Any]] = []
    for number, layer in enumerate(plans[WITH].structure.layers, 1):
        if not layer.prunable:
            continue
        parts = {
            way: next(part for part in plan.layers if part.layer.name == layer.name)
            for way, plan in plans.items()
        }
        limits.append(
            {
                "layer": number,
                "name": layer.name,
                "without %": parts[WITHOUT].pruned,
                "with %": parts[WITH].pruned,
                "protected %": float(parts[WITH].protected.mean()),
                "printed without %": printed[WITHOUT].get(layer.name),
                "printed with %": printed[WITH].get(layer.name),
            }
        )
    share = sum(row["protected %"] > 0 for row in limits)
    figures = draw_sensitivity(limits, bench.folder, network)
    differs = [
        f"Both prune {chosen:.1%}; the paper's protected network prunes 0.37 points more.",
        f"Shares tried per layer: {', '.join(f'{s:.0%}' for s in methods[WITH].config.shares)}; "
        f"{share} of {len(limits)} layers protect some filters.",
        "No retraining: BatchNorm measured again, then repair."
        if bench.recipe is None
        else f"{bench.recipe.epochs} epoch(s) of retraining after repair; the paper: 300.",
    ]
    facts = {"target": chosen, "rows": found, "limits": limits}
    title = f"{network}, {len(cells[0].stages[last].right)} test images"
    return Outcome(facts, {title: rows, "Limits γ by layer": limits}, differs, figures)

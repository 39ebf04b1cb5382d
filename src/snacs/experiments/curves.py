"""SVM accuracy against the level of pruning, and where the common threshold cuts each layer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from snacs.errors import InputError
from snacs.experiments.cells import Bench
from snacs.experiments.methods import method_of
from snacs.experiments.outcome import Outcome
from snacs.experiments.plots import draw_curves
from snacs.experiments.published import TARGETS


def reproduce_curves(
    bench: Bench,
    *,
    target: float | None = None,
    presets: Sequence[str] = ("paper",),
    seed: int = 0,
) -> Outcome:
    """Curves of all layers, one figure per preset that reads them."""
    network = bench.material.network
    chosen = TARGETS.get(network, 0.7) if target is None else target
    plans = {
        name: bench.plan(method_of(name, count=bench.material.count), chosen, seed)
        for name in presets
    }
    read = {
        name: plan
        for name, plan in plans.items()
        if plan.threshold is not None and all(part.curve is not None for part in plan.layers)
    }
    if not read:
        raise InputError(
            f"None of {', '.join(presets)} cuts SVM curves at a threshold. Give --presets paper."
        )
    tables, figures, facts = {}, [], {}
    for name, plan in read.items():
        rows: list[dict[str, Any]] = []
        for part in plan.layers:
            curve = part.curve
            if curve is None:
                continue
            number = plan.structure.layers.index(part.layer) + 1
            rows.append(
                {
                    "layer": number,
                    "name": part.layer.name,
                    "unpruned %": float(curve.base),
                    "at 50 %": float(curve.accuracy[abs(curve.levels - 0.5).argmin()]),
                    "limit %": part.pruned,
                    "protected %": float(part.protected.mean()),
                }
            )
        words = f"{network}, {name}: one {plan.config.reading} threshold of {plan.threshold:.3f}"
        tables[words] = rows
        facts[name] = {"threshold": plan.threshold, "reading": plan.config.reading, "rows": rows}
        figures += draw_curves(plan, bench.folder, f"curves-{name}")
    differs = [
        f"{bench.material.count} calibration images; an SVM is fitted once per layer on unpruned "
        "features, 99 levels.",
        f"The threshold is solved for {chosen:.1%} of all weights.",
    ]
    left = [name for name in presets if name not in read]
    differs += [f"Preset {name} does not read SVM curves." for name in left]
    return Outcome({"target": chosen, "presets": facts}, tables, differs, figures)

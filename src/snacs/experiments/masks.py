"""What masks look like without and with protected filters, for two layers of ResNet56."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from snacs.experiments.cells import Bench
from snacs.experiments.methods import preset_method
from snacs.experiments.outcome import Outcome
from snacs.experiments.plots import draw_masks
from snacs.experiments.published import TARGETS
from snacs.experiments.saved_share import layer_at
from snacs.experiments.sensitivity import WITH, WITHOUT, protections

SHARE = 0.4
"""Protected where the SVM search protects nobody: behind the paper's limit of convolution 46."""


def reproduce_masks(
    bench: Bench,
    *,
    target: float | None = None,
    convolutions: Sequence[int] = (35, 46),
    seed: int = 0,
) -> Outcome:
    """Masks of the given layers, counted from 1, both ways."""
    network, count = bench.material.network, bench.material.count
    chosen = TARGETS.get(network, 0.7) if target is None else target
    layers = {number: layer_at(bench.job(seed).structure, number) for number in convolutions}
    ways = protections(count)
    plain = bench.plan(ways[WITHOUT], chosen, seed)
    searched = bench.plan(ways[WITH], chosen, seed)
    shares = {part.layer.name: float(part.protected.mean()) for part in searched.layers}
    given = {layer.name: shares[layer.name] or SHARE for layer in layers.values()}
    by_hand = [number for number, layer in layers.items() if not shares[layer.name]]
    method = preset_method("masks", "paper", count=count, protect={**shares, **given})
    guarded = bench.plan(method, chosen, seed) if by_hand else searched
    rows: list[dict[str, Any]] = []
    pictures = []
    for number, layer in layers.items():
        before, after = (
            next(part for part in plan.layers if part.layer.name == layer.name)
            for plan in (plain, guarded)
        )
        rows.append(
            {
                "convolution": number,
                "name": layer.name,
                "pruned without %": before.pruned,
                "pruned with %": after.pruned,
                "protected filters": int(after.protected.sum()),
                "of": layer.c_out,
                "share chosen by": "hand" if number in by_hand else "SVM",
            }
        )
        pictures.append((number, layer.name, before, after))
    figures = draw_masks(pictures, bench.folder)
    differs = [
        "Rows are output filters, columns input filters; the paper's figure has no scale.",
        *(
            [
                f"The SVM search protects no filter of convolution(s) "
                f"{', '.join(map(str, by_hand))}; {SHARE:.0%} are protected by hand."
            ]
            if by_hand
            else []
        ),
    ]
    facts = {"target": chosen, "rows": rows, "by_hand": by_hand}
    return Outcome(facts, {f"{network} at {chosen:.1%}": rows}, differs, figures)

"""What if other shares of filters are protected? Seven each for two layers of ResNet56.

All other layers protect what the SVM search chose; the layer in question protects the given share,
and the limits are solved again for the same target.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from snacs.errors import InputError
from snacs.experiments.cells import Bench
from snacs.experiments.compare import compare, summary
from snacs.experiments.methods import Method, preset_method
from snacs.experiments.outcome import Outcome
from snacs.experiments.plots import draw_saved_share
from snacs.experiments.published import TARGETS
from snacs.experiments.sensitivity import WITH, protections
from snacs.values import Layer, Structure

PUBLISHED: Mapping[int, tuple[tuple[float, float, float], ...]] = {
    30: (
        (0.30, 0.1503, 0.9283), (0.34, 0.1503, 0.9305), (0.38, 0.1435, 0.9288),
        (0.45, 0.5507, 0.9341), (0.50, 0.4892, 0.9271), (0.54, 0.4589, 0.9324),
        (0.60, 0.3974, 0.9310),
    ),
    46: (
        (0.25, 0.2697, 0.9297), (0.30, 0.5483, 0.9313), (0.35, 0.4855, 0.9328),
        (0.40, 0.5817, 0.9341), (0.45, 0.5358, 0.9296), (0.50, 0.4899, 0.9350),
        (0.525, 0.4592, 0.9286),
    ),
}  # fmt: skip
"""By convolution, counted from 1 (the paper's "layer 28" and "layer 44" are entries 29 and 45 of a
list that starts at the second convolution): share saved, sparsity of the layer, accuracy."""


def layer_at(structure: Structure, number: int) -> Layer:
    """The ``number``-th Conv or Linear layer, from 1, which must be prunable."""
    if not 1 <= number <= len(structure.layers):
        raise InputError(f"There are layers 1 to {len(structure.layers)}. Got {number}.")
    layer = structure.layers[number - 1]
    if not layer.prunable:
        raise InputError(f"Layer {number} ({layer.name}) is kept: {layer.kept_because}.")
    return layer


def reproduce_saved_share(
    bench: Bench,
    *,
    target: float | None = None,
    convolutions: Sequence[int] = (30, 46),
    seed: int = 0,
) -> Outcome:
    """All shares of the paper's table, at one target."""
    network, count = bench.material.network, bench.material.count
    chosen = TARGETS.get(network, 0.7) if target is None else target
    structure = bench.job(seed).structure
    base = bench.plan(protections(count)[WITH], chosen, seed)
    shares = {part.layer.name: float(part.protected.mean()) for part in base.layers}
    tables = list(PUBLISHED.values())
    asked: list[tuple[int, Layer, tuple[float, float, float], Method]] = []
    for index, number in enumerate(convolutions):
        layer = layer_at(structure, number)
        for said in PUBLISHED.get(number, tables[index % len(tables)]):
            protect = {**shares, layer.name: said[0]}
            name = f"saved-{number}-{said[0] * 100:g}"
            method = preset_method(name, "paper", count=count, protect=protect)
            asked.append((number, layer, said, method))
    cells = compare(bench, targets=[chosen], methods=[one[-1] for one in asked], seed=seed)
    found = summary(cells, against=cells[0].method)
    rows: list[dict[str, Any]] = []
    for (number, layer, said, _), cell, row in zip(asked, cells, found, strict=True):
        shown: dict[str, Any] = {
            "convolution": number,
            "saved %": said[0],
            "sparsity %": cell.facts["layers"][layer.name],
        }
        shown |= {f"{stage} %": row[stage] for stage in bench.stages}
        shown["± %"] = row["error"]
        ours = number in PUBLISHED and network == "resnet56"
        shown["paper sparsity %"] = said[1] if ours else None
        shown["paper accuracy %"] = said[2] if ours else None
        rows.append(shown)
    figures = draw_saved_share(rows, bench.stages, bench.folder)
    differs = [
        f"The whole network loses {chosen:.1%} in every row: what this layer keeps, others lose. "
        "In the paper only this layer's sparsity changes.",
        "No retraining: BatchNorm measured again, then repair."
        if bench.recipe is None
        else f"{bench.recipe.epochs} epoch(s) of retraining after repair; the paper: 300.",
    ]
    facts = {"target": chosen, "rows": rows, "summary": found, "shares": shares}
    title = f"{network} at {chosen:.1%}, {len(cells[0].stages['masked'].right)} test images"
    return Outcome(facts, {title: rows}, differs, figures)

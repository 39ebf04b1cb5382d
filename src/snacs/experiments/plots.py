"""Figures of the experiments on networks; matplotlib is needed here (extra ``figures``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from snacs.experiments.cells import NAMES
from snacs.experiments.drawing import BLACK, BLUE, GREEN, ORANGE, figure_of, style, write_figure
from snacs.limits.ladders import read
from snacs.plans import Plan
from snacs.values import LayerPlan

Rows = Sequence[Mapping[str, Any]]

GREY, PINK = "#777777", "#cc79a7"
_STAGES = {"masked": GREY, "batchnorm": GREEN, "repaired": BLUE, "retrained": ORANGE}


def draw_phi(
    rows: Rows,
    published: Mapping[str, tuple[str, float]],
    stages: Sequence[str],
    dense: float,
    folder: Path,
) -> list[Path]:
    """Accuracy by φ after each stage, and what the paper says of each φ."""
    figure = figure_of(7.2, 3.0)
    with style():
        axes = figure.subplots(1, 2, sharey=True, gridspec_kw={"width_ratios": [2, 1]})
        names = list(published)
        where = {name: len(names) - index for index, name in enumerate(names)}
        targets = sorted({row["target"] for row in rows})
        for stage in stages:
            hollow = stage == "masked"  # and larger, so that it shows where BatchNorm is level
            for shift, target in enumerate(targets):
                mine = [row for row in rows if row["target"] == target]
                axes[0].errorbar(
                    [row[stage] * 100 for row in mine],
                    [where[row["method"]] - 0.2 * shift for row in mine],
                    xerr=[row["errors"][stage] * 100 for row in mine],
                    fmt="os^D"[shift % 4],
                    color=_STAGES[stage],
                    markersize=7 if hollow else 4,
                    markerfacecolor="none" if hollow else _STAGES[stage],
                    linewidth=1,
                    label=NAMES.get(stage, stage) if shift == 0 else None,
                )
        axes[0].axvline(dense * 100, color=BLACK, linewidth=0.8, linestyle=":", label="dense")
        shapes = "●■▲◆" if len(targets) > 1 else " "
        said = ", ".join(
            f"{shapes[index % len(shapes)]} {target:.0%}".strip()
            for index, target in enumerate(targets)
        )
        axes[0].set_xlabel(f"Accuracy at {said} pruned (%)")
        axes[0].set_yticks(list(where.values()), [published[name][0] for name in names])
        axes[0].set_ylabel("Scaling φ")
        axes[0].grid(axis="x", linewidth=0.3)
        values = [published[name][1] * 100 for name in names]
        axes[1].plot(values, list(where.values()), "x", color=BLACK)
        axes[1].set_xlabel("Paper: pruned (%)\nat ≥ 93.43 % accuracy")
        axes[1].grid(axis="x", linewidth=0.3)
        figure.legend(loc="outside upper center", ncols=5, frameon=False, fontsize=7)
        return write_figure(figure, folder / "phi")


def draw_layers(
    numbers: Sequence[int], series: Mapping[str, Sequence[float]], folder: Path, network: str
) -> list[Path]:
    """Pruned fraction of every layer, one panel per way."""
    figure = figure_of(7.2, 1.1 + 1.15 * len(series))
    with style():
        axes = np.atleast_1d(figure.subplots(len(series), 1, sharex=True, sharey=True))
        colours = (BLUE, ORANGE, GREEN, GREY)
        for axis, (name, values), colour in zip(axes, series.items(), colours, strict=False):
            axis.bar(numbers, np.asarray(values) * 100, color=colour, width=0.8)
            axis.set_title(name, loc="left", fontsize=8, pad=2)
            axis.set_ylim(0, 100)
            axis.grid(axis="y", linewidth=0.3)
        figure.supylabel("Pruned of the layer (%)", fontsize=8)
        axes[-1].set_xlabel(f"Layer of {network}, counted from 1")
        return write_figure(figure, folder / "layers")


def draw_sensitivity(limits: Rows, folder: Path, network: str) -> list[Path]:
    """Limits without and with protection, ours and, where there are any, the printed ones."""
    printed = any(row["printed with %"] is not None for row in limits)
    figure = figure_of(7.2, 4.2 if printed else 2.6)
    with style():
        axes = np.atleast_1d(figure.subplots(2 if printed else 1, 1, sharex=True, sharey=True))
        where = [row["layer"] for row in limits]
        for axis, words in zip(axes, ("", "printed "), strict=False):
            # Hollow and larger, so that equal limits show both.
            for way, colour, size, fill in (
                ("without", BLACK, 5.5, "none"),
                ("with", ORANGE, 3, ORANGE),
            ):
                values = [(row[f"{words}{way} %"] or 0.0) * 100 for row in limits]
                label = f"{way} protection"
                axis.plot(
                    where, values, "o", color=colour, markersize=size, label=label,
                    markerfacecolor=fill, markeredgewidth=0.8,
                )  # fmt: skip
            title = "the paper's γ as printed" if words else "ours"
            axis.set_title(title, loc="left", fontsize=8, pad=2)
            axis.set_ylim(-3, 103)
            axis.grid(axis="y", linewidth=0.3)
        shares = [row["protected %"] * 100 for row in limits]
        axes[0].bar(where, shares, color=BLUE, alpha=0.3, width=0.8, label="filters protected")
        axes[-1].set_xlabel(f"Layer of {network}, counted from 1")
        axes[-1].xaxis.get_major_locator().set_params(integer=True)
        figure.supylabel("Pruned of the layer (%)", fontsize=8)
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(
            handles, labels, loc="outside upper center", ncols=3, frameon=False, fontsize=7
        )
        return write_figure(figure, folder / "sensitivity")


def draw_saved_share(rows: Rows, stages: Sequence[str], folder: Path) -> list[Path]:
    """Accuracy and sparsity of the layer against the share of protected filters."""
    numbers = list(dict.fromkeys(row["convolution"] for row in rows))
    figure = figure_of(7.2, 4.4)
    with style():
        axes = figure.subplots(2, len(numbers), sharex="col", sharey="row", squeeze=False)
        for column, number in enumerate(numbers):
            mine = [row for row in rows if row["convolution"] == number]
            where = [row["saved %"] * 100 for row in mine]
            top, bottom = axes[0, column], axes[1, column]
            for stage in stages[-2:]:
                top.errorbar(
                    where,
                    [row[f"{stage} %"] * 100 for row in mine],
                    yerr=[row["± %"] * 100 for row in mine] if stage == stages[-1] else None,
                    fmt="o-",
                    color=_STAGES[stage],
                    markersize=4,
                    linewidth=1,
                    label=f"ours, {NAMES.get(stage, stage)}",
                )
            bottom.plot(
                where, [row["sparsity %"] * 100 for row in mine], "o-", color=BLUE, markersize=4,
                linewidth=1, label="ours",
            )  # fmt: skip
            if mine[0]["paper accuracy %"] is not None:
                said = {"color": BLACK, "markersize": 5, "linewidth": 1, "label": "paper"}
                top.plot(where, [row["paper accuracy %"] * 100 for row in mine], "x:", **said)
                bottom.plot(where, [row["paper sparsity %"] * 100 for row in mine], "x:", **said)
            top.set_title(f"convolution {number}", fontsize=8)
            bottom.set_xlabel("Filters protected (%)")
            for axis in (top, bottom):
                axis.grid(axis="y", linewidth=0.3)
        axes[0, 0].set_ylabel("Accuracy (%)")
        axes[1, 0].set_ylabel("Pruned of the layer (%)")
        handles, labels = axes[0, 0].get_legend_handles_labels()
        figure.legend(
            handles, labels, loc="outside upper center", ncols=4, frameon=False, fontsize=7
        )
        return write_figure(figure, folder / "saved-share")


def draw_masks(
    pictures: Sequence[tuple[int, str, LayerPlan, LayerPlan]], folder: Path
) -> list[Path]:
    """Kept connections white, pruned ones black, rows of protected filters marked red."""
    from matplotlib.colors import ListedColormap

    figure = figure_of(6.6, 3.1 * len(pictures) + 0.3)
    with style():
        axes = figure.subplots(len(pictures), 2, squeeze=False)
        for row, (number, name, before, after) in enumerate(pictures):
            for column, part in enumerate((before, after)):
                axis = axes[row, column]
                shown = part.keep.astype(int)
                shown[part.protected] = 2
                colours = ListedColormap([BLACK, "#ffffff", "#c8102e"])
                axis.imshow(shown, cmap=colours, vmin=0, vmax=2, interpolation="nearest",
                            aspect="auto")  # fmt: skip
                words = f"with protection, {part.protected.mean():.0%} of the filters"
                title = words if column else "without protection"
                axis.set_title(
                    f"convolution {number} ({name})\n{title}, {part.pruned:.1%} pruned", fontsize=8
                )
                axis.set_xlabel("Input filter")
                axis.set_ylabel("Output filter")
        figure.supxlabel("white: kept   black: pruned   red: protected, kept whole", fontsize=8)
        return write_figure(figure, folder / "masks")


def draw_curves(plan: Plan, folder: Path, name: str) -> list[Path]:
    """Curves of all layers in three panels by depth, with the threshold and each layer's limit."""
    import matplotlib as mpl

    relative = plan.config.reading == "relative"
    parts = [part for part in plan.layers if part.curve is not None]
    groups = [group for group in np.array_split(np.arange(len(parts)), 3) if len(group)]
    figure = figure_of(7.2, 2.9)
    with style():
        axes = np.atleast_1d(figure.subplots(1, len(groups), sharey=True))
        colours = mpl.colormaps["viridis"]
        for axis, group in zip(axes, groups, strict=True):
            for order, index in enumerate(group):
                part, curve = parts[index], parts[index].curve
                if curve is None:
                    continue
                accuracy = read(curve, plan.config)
                colour = colours(0.9 * order / max(1, len(group) - 1))
                axis.plot(curve.levels * 100, accuracy * 100, color=colour, linewidth=0.8)
                at = int(np.abs(curve.levels - part.limit).argmin())
                if part.limit >= curve.levels[0]:
                    axis.plot(part.limit * 100, accuracy[at] * 100, "o", color=colour, markersize=3)
            if plan.threshold is not None:
                axis.axhline(plan.threshold * 100, color=BLACK, linewidth=0.8, linestyle="--")
            numbers = [plan.structure.layers.index(parts[index].layer) + 1 for index in group]
            words = f"layers {numbers[0]}–{numbers[-1]} (dark to light)"
            axis.set_title(words, fontsize=8)
            axis.set_xlabel("Level of pruning (%)")
            axis.set_xlim(0, 100)
            axis.grid(axis="y", linewidth=0.3)
        what = "SVM accuracy, % of unpruned" if relative else "SVM accuracy (%)"
        axes[0].set_ylabel(what)
        figure.supxlabel(
            f"dashed: the common threshold {plan.threshold:.3f}   dots: the limit of each layer",
            fontsize=7,
        )
        return write_figure(figure, folder / name)


def draw_single_shot(tables: Mapping[str, Rows], folder: Path) -> list[Path]:
    """Pruning against accuracy; single-shot and iterative methods in two colours, ours marked.

    What ours loses beyond the published range is drawn at the lower edge with its value.
    """
    figure = figure_of(8.6, 3.6)
    kinds = {"single-shot": (BLUE, "o"), "iterative": (ORANGE, "s"), "ours": (BLACK, "*")}
    with style():
        axes = figure.subplots(1, len(tables))
        for axis, (network, rows) in zip(axes, tables.items(), strict=True):
            floor = min(row["change"] for row in rows if row["kind"] != "ours") - 2.0
            for kind, (colour, mark) in kinds.items():
                mine = [row for row in rows if row["kind"] == kind and row["change"] >= floor]
                axis.plot(
                    [row["pruned %"] * 100 for row in mine],
                    [row["change"] for row in mine],
                    mark,
                    color=colour,
                    markersize=9 if kind == "ours" else 4,
                    label=kind,
                )
            own = [row for row in rows if row["method"].startswith("SNACS")]
            axis.plot(
                [row["pruned %"] * 100 for row in own],
                [row["change"] for row in own],
                "o",
                markerfacecolor="none",
                color=PINK,
                markersize=9,
                label="SNACS, published",
            )
            for order, row in enumerate(row for row in rows if row["change"] < floor):
                place = (row["pruned %"] * 100, floor + 0.2)
                axis.plot(*place, "v", color=BLACK, markersize=5)
                change = f"{row['change']:.1f}".replace("-", "−")
                words = f"{row['method']} {change}"
                axis.annotate(words, place, (-5, 9 * order), textcoords="offset points", ha="right",
                              va="center", fontsize=6)  # fmt: skip
            axis.axhline(0, color=BLACK, linewidth=0.8, linestyle=":")
            few = "; ours among ten classes" if network == "resnet50" else ""
            axis.set_title(f"{network}{few}", fontsize=8)
            axis.set_xlabel("Pruned (%)")
            axis.set_ylim(bottom=floor)
            axis.grid(linewidth=0.3)
        axes[0].set_ylabel("Change of test accuracy (points)")
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(
            handles, labels, loc="outside upper center", ncols=4, frameon=False, fontsize=7
        )
        return write_figure(figure, folder / "single-shot")

"""The figure of the main experiment; matplotlib is needed here (extra ``figures``)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

from snacs.experiments.cells import NAMES, STAGES, Cell
from snacs.experiments.drawing import BLACK, BLUE, GREEN, ORANGE, figure_of, style, write_figure
from snacs.experiments.measuring import estimate
from snacs.experiments.plots import PINK
from snacs.experiments.published import Published

_COLOURS = (BLUE, ORANGE, GREEN, PINK)


def draw_main(
    cells: Sequence[Cell], dense: float, said: Published | None, folder: Path, *, same_data: bool
) -> list[Path]:
    """Accuracy after each stage, and how much of the network went, with the paper's row beside."""
    stages = [stage for stage in STAGES if stage in cells[0].stages]
    figure = figure_of(7.2, 3.0)
    with style():
        axes = figure.subplots(1, 2, gridspec_kw={"width_ratios": [3, 2]})
        for cell, colour in zip(cells, cycle(_COLOURS), strict=False):
            found = [estimate(cell.stages[stage].right) for stage in stages]
            axes[0].errorbar(
                range(len(stages)),
                [value.mean * 100 for value in found],
                yerr=[value.error * 100 for value in found],
                fmt="o-",
                color=colour,
                markersize=4,
                linewidth=1,
                label=f"preset {cell.method}",
            )
            for place, value in enumerate(found):
                axes[0].annotate(
                    f"{value.mean:.1%}", (place, value.mean * 100), (6, -7),
                    textcoords="offset points", fontsize=6, color=colour,
                )  # fmt: skip
        axes[0].axhline(dense * 100, color=BLACK, linewidth=0.8, linestyle=":", label="dense")
        if said is not None and same_data:
            last = len(stages) - 1
            axes[0].plot(last, said.accuracy * 100, "x", color=BLACK, label="the paper's figure")
        axes[0].set_xticks(range(len(stages)), [NAMES.get(stage, stage) for stage in stages])
        axes[0].set(xlim=(-0.3, len(stages) - 0.55), ylim=(0, 100))
        axes[0].set_ylabel("Test accuracy (%)")
        axes[0].grid(axis="y", linewidth=0.3)
        _gone(axes[1], cells, said)
        figure.legend(loc="outside upper center", ncols=5, frameon=False, fontsize=7)
        return write_figure(figure, folder / "main")


def _gone(axis: Any, cells: Sequence[Cell], said: Published | None) -> None:
    """Bars: weights and MACs that went, in black by the paper's table."""
    bars = [(c, cell.facts) for cell, c in zip(cells, cycle(_COLOURS), strict=False)]
    if said is not None:
        bars.append((BLACK, {"pruned": said.pruned, "macs": said.macs}))
    width = 0.8 / len(bars)
    for number, (colour, facts) in enumerate(bars):
        for place, name in enumerate(("pruned", "macs")):
            if facts[name] is None:
                continue
            at = place + (number - (len(bars) - 1) / 2) * width
            axis.bar(at, facts[name] * 100, width * 0.9, color=colour)
            axis.text(at, facts[name] * 100 + 1, f"{facts[name]:.0%}", ha="center", fontsize=6)
    axis.set_xticks([0, 1], ["weights", "MACs"])
    axis.set_ylim(0, 105)
    axis.set_ylabel("Gone (%)" if said is None else "Gone (%); black: the paper")

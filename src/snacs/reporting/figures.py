"""Figures for papers, as SVG, PDF or PNG: the same facts as in the report, drawn for print.

matplotlib is needed here and for ``snacs reproduce``: ``pip install 'snacs[figures]'``.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from snacs.errors import InputError, RunFolderError
from snacs.files import read_json, write_file
from snacs.limits.ladders import read
from snacs.plans import Plan
from snacs.reporting.folder import read_findings

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FIGURES = {
    "curves": "SVM curves with the threshold and the limits it sets",
    "layers": "Compression of every layer, runs side by side",
    "masks": "Masks of layers, protected filters marked",
    "runtime": "Run time against the number of groups",
}
FORMATS = ("svg", "pdf", "png")
_BLUE, _ORANGE, _GREEN, _PINK, _YELLOW, _SKY, _BLACK = (
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000",
)  # fmt: skip
_SERIES = (_BLUE, _ORANGE, _GREEN, _PINK, _YELLOW, _SKY, _BLACK)  # Okabe and Ito
_MARKERS = "osD^vPX"
_NAMED = 40  # more layers than this are numbered, not named


def draw(
    kind: str,
    sources: Sequence[Path],
    out: Path,
    *,
    layers: Sequence[str] = (),
    title: str | None = None,
) -> Path:
    """Draw one of :data:`FIGURES` from run folders and write it; the suffix is the format.

    Parameters
    ----------
    sources : paths
        Run folders; for "runtime" a JSON file with ``rows`` of method, groups and seconds.
    layers : names
        Layers for "masks"; the two with most protected filters if none are given.
    """
    form = out.suffix.lstrip(".").lower()
    if form not in FORMATS:
        raise InputError(f"A figure is written as .svg, .pdf or .png. Got {str(out)!r}.")
    if kind not in FIGURES:
        raise InputError(f"There is no figure {kind!r}. Give one of {', '.join(FIGURES)}.")
    matplotlib = _matplotlib()
    settings = {
        "font.size": 8,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "text.parse_math": False,  # a layer's name is a name, whatever signs it holds
        "pdf.fonttype": 42,
        "svg.hashsalt": "snacs",  # the same figure is the same file
        "savefig.bbox": "tight",
    }
    with matplotlib.rc_context(settings):
        figure = _draw(kind, sources, layers)
        if title:
            figure.suptitle(title, fontsize=9)
        buffer = io.BytesIO()
        stamp = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(form)
        figure.savefig(buffer, format=form, dpi=300, metadata=stamp)
    write_file(out, buffer.getvalue())
    return out


def _draw(kind: str, sources: Sequence[Path], layers: Sequence[str]) -> Figure:
    if kind == "runtime":
        return _runtime([row for source in sources for row in _rows(source)])
    plans = {_name(source): _plan(source) for source in sources}
    drawers: dict[str, Callable[[Mapping[str, Plan]], Figure]] = {
        "curves": _curves,
        "layers": _layers,
        "masks": lambda found: _masks(found, layers),
    }
    return drawers[kind](plans)


def _curves(plans: Mapping[str, Plan]) -> Figure:
    figure, axes = _panels(1, len(plans), width=3.4, height=2.6)
    for axis, (name, plan) in zip(axes, plans.items(), strict=True):
        parts = [part for part in plan.layers if part.curve is not None]
        if not parts:
            raise InputError(f"The plan of {name} has no SVM curves: it was not allocated by them.")
        relative = plan.config.reading == "relative"
        colours = _depths(len(parts))
        for colour, part in zip(colours, parts, strict=True):
            if part.curve is None:
                continue
            levels, accuracy = part.curve.levels, read(part.curve, plan.config)
            axis.plot(100 * levels, 100 * accuracy, color=colour, linewidth=0.7)
            at = int(np.clip(round(part.limit * 100), 1, len(levels))) - 1
            if part.limit > 0:
                axis.plot(
                    100 * part.limit, 100 * accuracy[at], ".", color=_ORANGE, markersize=4, zorder=9
                )
        if plan.threshold is not None:
            axis.axhline(100 * plan.threshold, linestyle=":", color=_BLACK, linewidth=1)
        axis.set(xlabel="Pruned (%)", xlim=(0, 100))
        axis.set_ylabel("SVM accuracy, relative (%)" if relative else "SVM accuracy (%)")
        if len(plans) > 1:
            axis.set_title(name, fontsize=8)
    return figure


def _layers(plans: Mapping[str, Plan]) -> Figure:
    names = list(dict.fromkeys(layer.name for plan in plans.values() for layer in plan.structure))
    place = {name: index for index, name in enumerate(names)}
    figure, (axis,) = _panels(1, 1, width=max(3.4, min(7.0, 0.13 * len(names))), height=2.2)
    width = 0.8 / len(plans)
    for index, (run, plan) in enumerate(plans.items()):
        pruned = {part.layer.name: part.pruned for part in plan.layers}
        heights = [100 * pruned.get(layer.name, 0.0) for layer in plan.structure]
        at = [place[layer.name] + 0.6 + width * (index + 0.5) for layer in plan.structure]
        axis.bar(at, heights, width, color=_SERIES[index % len(_SERIES)], label=run)
    axis.set(ylabel="Pruned (%)", ylim=(0, 100), xlim=(0.3, len(names) + 0.7))
    if len(names) <= _NAMED:
        axis.set_xticks(range(1, len(names) + 1), names, rotation=90, fontsize=6)
    else:
        axis.set_xlabel("Layer, in order of the forward pass")
    if len(plans) > 1:
        axis.legend(frameon=False, fontsize=7, ncols=2, loc="lower left", bbox_to_anchor=(0, 1))
    return figure


def _masks(plans: Mapping[str, Plan], layers: Sequence[str]) -> Figure:
    from matplotlib.colors import ListedColormap

    first = next(iter(plans.values()))
    chosen = list(layers) or [
        part.layer.name
        for part in sorted(first.layers, key=lambda part: (-part.protected.sum(), -part.pruned))[:2]
    ]
    shape = (1, len(chosen)) if len(plans) == 1 else (len(chosen), len(plans))
    figure, axes = _panels(*shape, width=2.3, height=2.3)
    colours = ListedColormap([_BLACK, "#ffffff", _ORANGE])
    pairs = [(layer, run) for layer in chosen for run in plans]
    for axis, (layer, run) in zip(axes, pairs, strict=True):
        try:
            part = plans[run][layer]
        except KeyError:
            names = ", ".join(part.layer.name for part in plans[run].layers)
            raise InputError(f"{run} prunes no layer {layer!r}. It has: {names}.") from None
        kinds = part.keep.astype(np.int8)
        kinds[part.protected] *= 2
        axis.imshow(
            kinds, cmap=colours, vmin=0, vmax=2, aspect="auto", interpolation="nearest",
            extent=(0, part.layer.c_in, part.layer.c_out, 0),
        )  # fmt: skip
        for row in np.flatnonzero(part.protected):  # not by colour alone
            axis.annotate(
                "◂", (1.0, 1 - (row + 0.5) / part.layer.c_out), xycoords="axes fraction",
                color=_ORANGE, fontsize=5, va="center", annotation_clip=False,
            )  # fmt: skip
        name = layer if len(plans) == 1 else f"{layer}, {run}"
        axis.set(xlabel="Input channel", ylabel="Filter")
        axis.set_title(f"{name}: {part.pruned:.1%} pruned", fontsize=7)
    return figure


def _runtime(rows: Sequence[Mapping[str, Any]]) -> Figure:
    figure, (axis,) = _panels(1, 1, width=3.4, height=2.4)
    methods = list(dict.fromkeys(str(row["method"]) for row in rows))
    for index, method in enumerate(methods):
        mine = sorted(
            (row["groups"], row["seconds"]) for row in rows if str(row["method"]) == method
        )
        published = any(row.get("note") == "published" for row in rows if row["method"] == method)
        axis.plot(
            *zip(*mine, strict=True),
            linestyle="--" if published else "-",
            marker=_MARKERS[index % len(_MARKERS)],
            color=_SERIES[index % len(_SERIES)],
            linewidth=1.2,
            markersize=4,
            label=method,
        )
    axis.set(xscale="log", yscale="log", xlabel="Groups per layer", ylabel="Run time (s)")
    groups = sorted({row["groups"] for row in rows})
    axis.set_xticks(groups, [str(group) for group in groups])
    axis.yaxis.set_major_formatter("{x:g}")  # matplotlib's own would be mathematics, not text
    axis.minorticks_off()
    axis.grid(axis="y", linewidth=0.3)
    axis.legend(frameon=False, fontsize=7)
    return figure


def _rows(source: Path) -> list[dict[str, Any]]:
    try:
        found = read_json(source)
    except FileNotFoundError:
        raise InputError(f"There is no file {source}.") from None
    rows = found.get("rows") if isinstance(found, dict) else None
    if not rows or not all({"method", "groups", "seconds"} <= set(row) for row in rows):
        raise InputError(f"{source} holds no rows of method, groups and seconds.")
    return list(rows)


def _plan(source: Path) -> Plan:
    plan = read_findings(source).plan
    if plan is None:
        raise RunFolderError(f"{source} holds no finished plan; run its command again.")
    return plan


def _name(source: Path) -> str:
    return source.resolve().name


def _panels(rows: int, columns: int, *, width: float, height: float) -> tuple[Figure, list[Axes]]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False)
    return figure, list(axes.ravel())


def _depths(count: int) -> Any:
    from matplotlib import colormaps

    return colormaps["viridis"](np.linspace(0, 0.9, count))


def _matplotlib() -> Any:
    try:
        import matplotlib
    except ImportError as error:
        raise InputError("Figures need matplotlib: pip install 'snacs[figures]'.") from error
    return matplotlib

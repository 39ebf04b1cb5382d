"""The figures of ``snacs reproduce``; matplotlib is needed here (extra ``figures``)."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from snacs.errors import InputError
from snacs.files import write_file

Tables = Mapping[str, Sequence[Mapping[str, Any]]]

BLACK, BLUE, ORANGE, GREEN = "#000000", "#0072b2", "#d55e00", "#009e73"  # Okabe and Ito
_METHODS = {"MST": BLUE, "φ = 1": ORANGE, "‖w‖": GREEN}


def draw_estimator(tables: Tables, folder: Path) -> list[Path]:
    """Error against N and against dimension, and convergence; as SVG and PNG in ``folder``."""
    figure = figure_of(10.2, 5.4)
    with style():
        axes = figure.subplots(2, 3)
        _errors(axes[0, 0], tables["samples"], "N", "floor", "independent, 1 + 1 + 2 dimensions")
        _errors(axes[0, 1], tables["dimensions"], "dims", "floor", "every coordinate floored")
        _errors(axes[0, 2], tables["dimensions"], "dims", "projection", "p-stable projection")
        _means(axes[1, 0], tables["convergence"], "Gaussian")
        _means(axes[1, 1], tables["convergence"], "two squares")
        _condition(axes[1, 2], tables["condition"])
        return write_figure(figure, folder / "estimator")


def draw_runtime(rows: Sequence[Mapping[str, Any]], folder: Path) -> list[Path]:
    """Seconds against G, ours (lines) and published (dotted); as SVG and PNG in ``folder``."""
    figure = figure_of(6.4, 3.2)
    with style():
        axis = figure.subplots()
        methods = list(dict.fromkeys(row["method"] for row in rows))
        for method in methods:
            mine = sorted(
                (row["groups"], row["seconds"]) for row in rows if row["method"] == method
            )
            published = method.endswith("published")
            colour = next(c for name, c in _METHODS.items() if name in method)
            axis.plot(
                *zip(*mine, strict=True),
                "x:" if published else "o-",
                color=colour,
                markersize=4,
                linewidth=1,
                label=method,
            )
        axis.set(xscale="log", yscale="log", xlabel="Groups per layer (G)", ylabel="Seconds")
        groups = sorted({row["groups"] for row in rows})
        axis.set_xticks(groups, [str(group) for group in groups])
        axis.minorticks_off()
        axis.grid(axis="y", linewidth=0.3)
        axis.legend(frameon=False, fontsize=7, loc="center left", bbox_to_anchor=(1, 0.5))
        return write_figure(figure, folder / "runtime")


def figure_of(width: float, height: float) -> Any:
    """An empty figure, inches; matplotlib's global state is not touched."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise InputError("Figures need matplotlib: pip install 'snacs[figures]'.") from error
    return Figure(figsize=(width, height), layout="constrained")


def check_figures() -> None:
    """Raise before hours of work, not after them, where figures cannot be drawn."""
    figure_of(1.0, 1.0)


def style() -> Any:
    """The look of all figures, for a with block."""
    import matplotlib as mpl

    settings: Any = {"font.size": 8, "svg.hashsalt": "snacs", "axes.spines.top": False}
    return mpl.rc_context({**settings, "axes.spines.right": False})


def write_figure(figure: Any, path: Path) -> list[Path]:
    """The same figure as SVG and PNG."""
    paths = []
    for suffix in ("svg", "png"):
        buffer = io.BytesIO()
        stamp = {"Date": None} if suffix == "svg" else None  # the same figure is the same file
        figure.savefig(buffer, format=suffix, dpi=200, metadata=stamp)
        paths.append(path.with_suffix(f".{suffix}"))
        write_file(paths[-1], buffer.getvalue())
    return paths


def _errors(
    axis: Any, rows: Sequence[Mapping[str, Any]], along: str, kind: str, title: str
) -> None:
    """Mean squared errors, authors' and ours; the truth is 0."""
    where = [row[along] for row in rows]
    for scaling, colour, phi in (("one", BLUE, "1"), ("exp", ORANGE, "exp(−‖act‖²/2)")):
        for support, style in (("full", "o-"), ("edges", "s--")):
            values = [row[f"{kind} {support} {scaling} mse"] for row in rows]
            label = f"{support}, φ = {phi}"
            axis.plot(where, values, style, color=colour, markersize=3, linewidth=1, label=label)
        if f"published {scaling} mse" in rows[0]:
            values = [row[f"published {scaling} mse"] for row in rows]
            axis.plot(
                where, values, "x:", color=colour, markersize=5, label=f"published, φ = {phi}"
            )
    # With φ = exp(−‖act‖²/2) everything vanishes in many dimensions, φ itself first of all.
    axis.set(yscale="log", ylabel="Mean squared error", title=title, ylim=(1e-8, 2))
    axis.set_xlabel("Samples" if along == "N" else "Dimensions of X, Y and Z (N = 5,000)")
    if along == "N":
        axis.set_xscale("log")
    if kind == "projection":
        axis.legend(frameon=False, fontsize=6, loc="lower right")


def _means(axis: Any, rows: Sequence[Mapping[str, Any]], law: str) -> None:
    """Mean estimates as N grows, with the truth."""
    mine = [row for row in rows if row["law"] == law]
    for dims, colour in zip((0, 1, 2), (BLUE, ORANGE, GREEN), strict=True):
        some = [row for row in mine if row["dims of Z"] == dims]
        for support, style in (("full", "o-"), ("edges", "s--")):
            if some:
                axis.plot(
                    [row["N"] for row in some],
                    [row[f"floor {support} one mean"] for row in some],
                    style,
                    color=colour,
                    markersize=3,
                    linewidth=1,
                    label=f"{support}, {dims} dims of Z",
                )
    if mine:
        axis.axhline(mine[0]["truth"], color=BLACK, linewidth=0.8, label="truth")
    title = "Gaussian, correlation 0.8 given Z" if law == "Gaussian" else "uniform on two squares"
    axis.set(xscale="log", xlabel="Samples, ε ∝ N^(−1/2d)", ylabel="Estimate, φ = 1", title=title)
    axis.set_ylim(bottom=0)
    axis.legend(frameon=False, fontsize=6)


def _condition(axis: Any, rows: Sequence[Mapping[str, Any]]) -> None:
    """Bias as Z gets wider, and the samples that are alone in their cell."""
    where = [row["dims of Z"] for row in rows]
    for support, colour, style in (("full", BLUE, "o-"), ("edges", ORANGE, "s--")):
        values = [row[f"floor {support} one mean"] for row in rows]
        axis.plot(where, values, style, color=colour, markersize=3, linewidth=1, label=support)
    axis.set(xlabel="Dimensions of Z", ylabel="Estimate (truth 0)")
    axis.set_title("bias of a wide condition, N = 2,000, ε = 1")
    axis.legend(frameon=False, fontsize=6, loc="upper left")
    other = axis.twinx()
    other.plot(where, [row["floor singletons"] for row in rows], ":", color=BLACK, linewidth=1)
    other.set_ylabel("Alone in their cell (dotted)")
    other.set_ylim(0, 1)

"""Figures for papers: every kind in every format, from one or several runs."""

from __future__ import annotations

import builtins
import json
import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest
from made_runs import make_plan, make_run

from snacs.cli import main
from snacs.errors import InputError, RunFolderError
from snacs.reporting.figures import draw

pytest.importorskip("matplotlib", reason="needs the extra: pip install 'snacs[figures]'")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    plan = make_plan(names=["a", "b$x^2$", "<c>", "d_1"])
    return make_run(tmp_path_factory.mktemp("figures") / "run", plan, bench=False)


@pytest.fixture
def runtime(tmp_path):
    rows = [
        {"method": method, "groups": groups, "seconds": factor * groups**2}
        for method, factor in (("MST", 1e-2), ("ACMI", 1e-4))
        for groups in (16, 32, 64)
    ]
    path = tmp_path / "runtime.json"
    path.write_text(json.dumps({"rows": rows}))
    return path


@pytest.mark.parametrize("kind", ["curves", "layers", "masks"])
def test_svg_figures_hold_marks_and_can_be_read(run, tmp_path, kind):
    path = draw(kind, [run], tmp_path / "fig.svg", title="A title")
    tree = ET.parse(path)
    assert len(list(tree.iter("{http://www.w3.org/2000/svg}path"))) > 5


def test_pdf_and_png_are_what_they_say(run, tmp_path):
    assert draw("curves", [run], tmp_path / "f.pdf").read_bytes().startswith(b"%PDF")
    assert draw("curves", [run], tmp_path / "f.png").read_bytes().startswith(b"\x89PNG")


def test_the_same_figure_is_the_same_file(run, tmp_path):
    files = [draw("layers", [run], tmp_path / f"{i}.svg").read_bytes() for i in range(2)]
    assert files[0] == files[1]


def test_runs_stand_side_by_side(run, tmp_path):
    one = draw("layers", [run], tmp_path / "one.svg").stat().st_size
    other = make_run(tmp_path / "other", make_plan(names=["a", "b$x^2$", "<c>", "d_1"], seed=3))
    both = draw("layers", [run, other], tmp_path / "both.svg")
    assert both.stat().st_size > one
    draw("masks", [run, other], tmp_path / "masks.svg", layers=["<c>"])
    assert (tmp_path / "masks.svg").stat().st_size > 1000


def test_the_command_draws_run_times(runtime, tmp_path, capsys):
    out = tmp_path / "runtime.svg"
    assert main(["figure", "runtime", str(runtime), "--out", str(out), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["file"] == str(out)
    assert out.read_bytes().startswith(b"<?xml")
    assert b"mathdefault" not in out.read_bytes()  # ticks are numbers, not TeX


def test_mistakes_say_what_to_give(run, runtime, tmp_path, monkeypatch):
    with pytest.raises(InputError, match=r"\.svg, \.pdf or \.png"):
        draw("curves", [run], tmp_path / "fig.gif")
    with pytest.raises(InputError, match="no figure"):
        draw("pie", [run], tmp_path / "fig.svg")
    with pytest.raises(InputError, match="<c>"):
        draw("masks", [run], tmp_path / "fig.svg", layers=["gone"])
    with pytest.raises(RunFolderError, match="no run folder"):
        draw("curves", [tmp_path / "gone"], tmp_path / "fig.svg")
    with pytest.raises(InputError, match="method, groups and seconds"):
        draw("runtime", [run / "result.json"], tmp_path / "fig.svg")
    real = builtins.__import__

    def without(name, *rest):
        if name == "matplotlib":
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(InputError, match=r"snacs\[figures\]"):
        draw("curves", [run], tmp_path / "fig.svg")


def test_curves_are_drawn_as_they_are_read(tmp_path):
    """Under a cap the curves end at it, as they do where limits are set."""
    made = make_plan()
    files = []
    for cap in (1.0, 0.4):
        plan = replace(made, config=replace(made.config, reading="absolute", cap=cap))
        run = make_run(tmp_path / f"{cap}" / "run", plan)
        files.append(draw("curves", [run], tmp_path / f"{cap}.svg").read_bytes())
    assert files[0] != files[1]

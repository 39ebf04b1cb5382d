"""The scripts of ``experiments/quality``: every method they name exists, and they start."""

from __future__ import annotations

import doctest
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from snacs.experiments.methods import method_of

FOLDER = Path(__file__).parents[2] / "experiments" / "quality"
SCRIPTS = sorted(path for path in FOLDER.glob("*.py") if path.name != "asking.py")


def test_there_is_one_for_every_question():
    assert {path.stem for path in SCRIPTS} == {
        "ablation", "allocation", "coupled", "final", "greedy", "protection", "repair",
        "score", "unrepaired",
    }  # fmt: skip


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_methods_exist(path, monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    methods = runpy.run_path(str(path))["METHODS"]
    assert [method_of(name).name for name in methods] == list(methods)
    assert methods[0].startswith("default")


def test_what_greedy_works_out_itself_is_right(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    found = doctest.testmod(__import__("greedy"))
    assert found.attempted > 0
    assert found.failed == 0


def test_arguments_are_handed_on(tmp_path):
    wrong = [sys.executable, str(SCRIPTS[0]), "--targets", "1.5", "--run", str(tmp_path / "run")]
    found = subprocess.run(wrong, capture_output=True, text=True, timeout=120, check=False)
    assert found.returncode == 2
    assert "1.5" in found.stderr

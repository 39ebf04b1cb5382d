"""The scripts of ``experiments/quality``: every method they name exists, and they start."""

from __future__ import annotations

import doctest
import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from snacs.experiments.methods import method_of
from snacs.zoo.entry import seeded
from snacs.zoo.networks import SmallResNet
from snacs.zoo.weights import save_weights

FOLDER = Path(__file__).parents[2] / "experiments" / "quality"
SHARED = {"asking", "workbench"}
OWN = {"affine", "doubt", "iterated", "ridge", "start"}
"""Questions that are no method of ``snacs compare``."""
SCRIPTS = sorted(path for path in FOLDER.glob("*.py") if path.stem not in SHARED | OWN)


def test_there_is_one_for_every_question():
    assert {path.stem for path in SCRIPTS} == {
        "ablation", "allocation", "coupled", "exchange", "final", "greedy", "protection", "repair",
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


@pytest.mark.parametrize("question", [*sorted(OWN), "doubt --unrepaired"])
def test_questions_of_their_own_are_answered(question, tmp_path):
    name, *flags = question.split()
    save_weights(seeded(SmallResNet, seed=1), tmp_path / "small-resnet.safetensors")
    words = ["--network", "small-resnet", "--targets", "0.5", "--run", str(tmp_path / "run")]
    found = subprocess.run(
        [sys.executable, str(FOLDER / f"{name}.py"), *words, *flags],
        capture_output=True, text=True, timeout=300, check=False,
        env={**os.environ, "SNACS_WEIGHTS": str(tmp_path), "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert found.returncode == 0, found.stderr
    lines = found.stdout.splitlines()
    assert len(lines) >= 2
    assert all(line.startswith("50%") and "KL" in line for line in lines)

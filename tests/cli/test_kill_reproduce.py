"""``snacs reproduce`` killed at random moments goes on and ends with the same figures."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from snacs.zoo.entry import seeded
from snacs.zoo.networks import SmallConvNet
from snacs.zoo.weights import save_weights


def _command(run: Path) -> list[str]:
    return [
        sys.executable, "-m", "snacs", "reproduce", "main", "--network", "small-conv",
        "--target", "0.6", "--epochs", "3", "--images", "60", "--train-images", "300",
        "--batch-size", "50", "--test-images", "100", "--jobs", "1", "--run", str(run), "--quiet",
    ]  # fmt: skip


def _written(run: Path) -> int:
    """Stages and checkpoints that are there, or were: published cells drop their checkpoints."""
    return sum(
        name == "stage.json" or name.startswith("epoch-")
        for _, _, files in os.walk(run)
        for name in files
    )


def _plain(run: Path) -> list[dict]:
    cells = json.loads((run / "main.json").read_text())["cells"]
    for cell in cells:
        for row in cell["epochs"]:
            row.pop("seconds")
    return cells


def _killed(tmp_path: Path, monkeypatch, kills: int, seed: int) -> None:
    monkeypatch.setenv("SNACS_WEIGHTS", str(tmp_path))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    save_weights(seeded(SmallConvNet, seed=1), tmp_path / "small-conv.safetensors")
    subprocess.run(_command(tmp_path / "whole"), check=True, capture_output=True)
    files = _written(tmp_path / "whole")
    moments, run, struck = random.Random(seed), tmp_path / "killed", 0
    for moment in sorted(moments.sample(range(files), kills)):
        process = subprocess.Popen(
            _command(run), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip
        while process.poll() is None and _written(run) < moment:
            time.sleep(0.002)
        time.sleep(moments.uniform(0, 0.1))
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            struck += 1
        process.wait()
    assert struck >= kills - 1
    subprocess.run(_command(run), check=True, capture_output=True)
    assert _plain(run) == _plain(tmp_path / "whole")


def test_two_kills_change_nothing(tmp_path, monkeypatch):
    _killed(tmp_path, monkeypatch, kills=2, seed=0)


@pytest.mark.slow
def test_ten_kills_change_nothing(tmp_path, monkeypatch):
    _killed(tmp_path, monkeypatch, kills=10, seed=1)

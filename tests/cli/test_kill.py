"""kill -9 at random moments, the same command again: identical masks, no clean-up by hand."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from safetensors.torch import load_file

from snacs.plans import Plan
from snacs.zoo.entry import seeded
from snacs.zoo.networks import SmallConvNet
from snacs.zoo.weights import save_weights


def _command(weights: Path, run: Path) -> list[str]:
    return [
        sys.executable, "-m", "snacs", "prune", "small-conv", "--weights", str(weights),
        "--data", "digits", "--target", "0.6", "--images", "300", "--retrain", "2",
        "--run", str(run), "--quiet",
    ]  # fmt: skip


def _written(run: Path) -> int:
    """How far a run is: stages and checkpoints that are there."""
    found = 0
    for _, _, files in os.walk(run):  # which, unlike rglob, takes folders that come and go
        found += sum(name == "stage.json" or name.startswith("epoch-") for name in files)
    return found


def _kill_at(command: list[str], run: Path, files: int, delay: float) -> bool:
    """Start the command and kill it a moment after it has written so many files."""
    process = subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # so that its workers die with it
    )
    while process.poll() is None and _written(run) < files:
        time.sleep(0.002)
    time.sleep(delay)
    alive = process.poll() is None
    if alive:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    return alive


def _killed_and_run_again(tmp_path: Path, kills: int, seed: int) -> None:
    weights = tmp_path / "w.safetensors"
    save_weights(seeded(SmallConvNet, seed=1), weights)
    subprocess.run(_command(weights, tmp_path / "whole"), check=True, capture_output=True)
    files = _written(tmp_path / "whole")
    moments = random.Random(seed)
    run = tmp_path / "killed"
    struck = [
        _kill_at(_command(weights, run), run, moment, moments.uniform(0, 0.1))
        for moment in sorted(moments.sample(range(files), kills))
    ]
    assert struck.count(True) >= kills - 1  # the last moment may lie just before the end
    subprocess.run(_command(weights, run), check=True, capture_output=True)
    plans = [Plan.load(tmp_path / run / "plan") for run in ("whole", "killed")]
    for ours, theirs in zip(*(plan.layers for plan in plans), strict=True):
        np.testing.assert_array_equal(ours.keep, theirs.keep)
        np.testing.assert_array_equal(ours.scores, theirs.scores)
    states = [load_file(tmp_path / run / "pruned.safetensors") for run in ("whole", "killed")]
    for name, tensor in states[0].items():
        np.testing.assert_array_equal(tensor.numpy(), states[1][name].numpy(), err_msg=name)
    left = [p for p in (tmp_path / "killed").rglob(".*") if p.name != ".lock"]
    assert left == []


def test_three_kills_change_nothing(tmp_path):
    _killed_and_run_again(tmp_path, kills=3, seed=0)


@pytest.mark.slow
def test_ten_kills_change_nothing(tmp_path):
    _killed_and_run_again(tmp_path, kills=10, seed=1)

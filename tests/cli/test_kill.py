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


def _killed_and_run_again(tmp_path: Path, kills: int, seed: int) -> None:
    weights = tmp_path / "w.safetensors"
    save_weights(seeded(SmallConvNet, seed=1), weights)
    started = time.monotonic()
    subprocess.run(_command(weights, tmp_path / "whole"), check=True, capture_output=True)
    whole = time.monotonic() - started
    random_moment = random.Random(seed)
    struck = 0
    for _ in range(kills):
        process = subprocess.Popen(
            _command(weights, tmp_path / "killed"),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # so that its workers die with it
        )
        try:
            process.wait(timeout=random_moment.uniform(0.2, 0.95) * whole)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            struck += 1
    assert struck > 0  # the later ones may find a finished run: then there is nothing to kill
    subprocess.run(_command(weights, tmp_path / "killed"), check=True, capture_output=True)
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

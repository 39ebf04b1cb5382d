"""``snacs train``: real processes, killed at any moment, end with the same bits."""

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
import torch

from snacs.cli import main
from snacs.zoo.weights import metadata_of, normalisation_of


@pytest.fixture(autouse=True)
def one_thread(monkeypatch):
    """These networks are too small to share out, and waiting threads slow each other down."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # of the processes that are started
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def _words(run: Path, *more: str) -> list[str]:
    return [
        "train", "small-conv", "--epochs", "4", "--batch-size", "100", "--seed", "5",
        "--train-images", "700",
        "--run", str(run), "--quiet", "--json", *more,
    ]  # fmt: skip


def _trained(capsys, words: list[str]) -> dict:
    assert main(words) == 0
    return json.loads(capsys.readouterr().out)


def test_a_network_learns_and_says_what_it_was_made_from(tmp_path, capsys):
    facts = _trained(capsys, _words(tmp_path / "a", "--rate", "0.05"))
    losses = [row["loss"] for row in facts["epochs"]]
    assert losses[-1] < 0.9 * losses[0]
    assert facts["accuracy"]["fraction"] > 0.3
    assert facts["recipe"]["learning_rate"] == 0.05
    file = tmp_path / "a" / "small-conv.safetensors"
    assert normalisation_of(file) is not None
    assert json.loads(metadata_of(file)["snacs"])["seed"] == 5
    again = _trained(capsys, _words(tmp_path / "b", "--rate", "0.05"))
    assert again["sha256"] == facts["sha256"]
    more = _trained(capsys, _words(tmp_path / "c", "--rate", "0.02", "--from", str(file)))
    assert more["epochs"][0]["loss"] < losses[0]
    assert more["from"] == str(file)


def test_a_budget_is_fitted_once_and_kept(tmp_path, capsys):
    words = ["train", "small-conv", "--budget", "2s", "--batch-size", "50", "--train-images"]
    words += ["400", "--run", str(tmp_path / "run"), "--quiet", "--json"]
    facts = _trained(capsys, words)
    kept = json.loads((tmp_path / "run" / "schedule" / "schedule.json").read_text())
    assert kept["recipe"]["epochs"] == len(facts["epochs"])
    again = _trained(capsys, words)
    assert again["resumed"] == len(facts["epochs"])
    assert again["sha256"] == facts["sha256"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--epochs", "2", "--budget", "1h"], "not both"),
        (["--epochs", "0"], "--epochs"),
        (["--budget", "soon"], "30m"),
        (["--recipe", "none"], "scratch"),
        (["--recipe", "brief"], "dense network"),
        (["--device", "abacus"], "abacus"),
        (["--from", "gone.safetensors"], "gone"),
    ],
)
def test_mistakes_are_told(tmp_path, capsys, words, message):
    assert main(["train", "small-conv", *words, "--run", str(tmp_path / "run"), "--quiet"]) == 2
    assert message in capsys.readouterr().err


def _checkpoints(run: Path) -> int:
    return sum(name.startswith("epoch-") for _, _, files in os.walk(run) for name in files)


def test_killed_at_random_moments_and_the_same_in_the_end(tmp_path, capsys):
    whole = _trained(capsys, _words(tmp_path / "whole"))
    run, moments = tmp_path / "killed", random.Random(0)
    for kill in range(3):
        process = subprocess.Popen(
            [sys.executable, "-m", "snacs", *_words(run)], start_new_session=True,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        while process.poll() is None and _checkpoints(run) < min(kill + 1, 2):
            time.sleep(0.002)
        time.sleep(moments.uniform(0, 0.05))
        os.killpg(process.pid, signal.SIGKILL) if process.poll() is None else None
        process.wait()
    facts = _trained(capsys, _words(run))
    assert facts["resumed"] >= 1
    assert facts["sha256"] == whole["sha256"]
    assert [row["loss"] for row in facts["epochs"]] == [row["loss"] for row in whole["epochs"]]
    assert facts["accuracy"] == whole["accuracy"]

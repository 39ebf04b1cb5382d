"""Comparisons: equal terms, paired errors, cells that resume and that several processes share."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from snacs.cli import main
from snacs.config import PRESETS, Config
from snacs.errors import InputError
from snacs.experiments.measuring import Measured, estimate, measured, paired
from snacs.experiments.methods import method_of, repairing
from snacs.plans import Plan
from snacs.zoo.entry import seeded
from snacs.zoo.networks import SmallConvNet
from snacs.zoo.weights import save_weights


@pytest.fixture
def weights(tmp_path) -> Path:
    path = tmp_path / "w.safetensors"
    save_weights(seeded(SmallConvNet, seed=1), path)
    return path


def _words(weights: Path, run: Path, *more: str) -> list[str]:
    return [
        "compare", "small-conv", "--weights", str(weights), "--images", "40", "--test-images", "60",
        "--target", "0.5", "--epochs", "2", "--train-images", "150", "--batch-size", "50",
        "--run", str(run), "--quiet", "--json", *more,
    ]  # fmt: skip


def test_paired_errors_are_those_of_the_differences():
    rng = np.random.default_rng(0)
    theirs = rng.random((2, 500)) < 0.8
    ours = theirs | (rng.random((2, 500)) < 0.1)  # right wherever they are, and more
    found = paired(list(ours), list(theirs))
    apart = ours.mean(0) - theirs.mean(0)
    assert found.mean == pytest.approx(apart.mean())
    assert found.error == pytest.approx(apart.std() / np.sqrt(500))
    alone = np.hypot(estimate(ours.mean(0)).error, estimate(theirs.mean(0)).error)
    assert found.error < alone / 2
    with pytest.raises(InputError, match="same images"):
        paired([[1, 0]], [[1, 0, 1]])


def test_divergence_and_accuracy_among_the_classes_of_the_data():
    dense = np.log(np.array([[0.5, 0.25, 0.25], [0.5, 0.25, 0.25]], dtype=np.float32))
    other = np.log(np.array([[0.25, 0.5, 0.25], [0.5, 0.25, 0.25]], dtype=np.float32))
    found = measured(other, np.array([2, 0]), dense, classes=[0, 2])
    # KL of (½, ¼, ¼) from (¼, ½, ¼) = ½ ln 2 − ¼ ln 2.
    np.testing.assert_allclose(found.divergence, [0.25 * np.log(2), 0], atol=1e-6)
    assert found.right.tolist() == [False, True]
    assert found.among.tolist() == [False, True]
    found = measured(other, np.array([0, 0]), dense, classes=[0, 2])
    assert found.right.tolist() == [False, True]
    assert found.among.tolist() == [True, True]  # class 1 does not occur
    broken = measured(np.full((2, 3), np.nan, np.float32), np.array([0, 0]), dense, [0, 1, 2])
    assert broken.facts()["divergence"] is None


def test_measurements_are_read_as_they_were_written(tmp_path):
    found = Measured(np.array([True, False]), np.array([True, True]), np.array([0.5, 0.25]))
    found.write_into(tmp_path)
    again = Measured.read(tmp_path)
    assert again.facts() == found.facts()
    assert json.loads((tmp_path / "measured.json").read_text())["accuracy"] == 0.5


@pytest.mark.parametrize(
    ("name", "score", "allocation", "follows"),
    [
        ("l2", "l2", "uniform", False),
        ("l2-global", "l2", "global", False),
        ("l2-activation", "l2-activation", "uniform", False),
        ("l2-activation-own", "l2-activation", "svm", False),
        ("mint-default", "mint", "manual", True),
    ],
)
def test_names_of_methods(name, score, allocation, follows):
    found = method_of(name)
    assert (found.config.score, found.config.allocation) == (score, allocation)
    assert found.follows is follows
    assert found.config.groups == (16 if score == "mint" else None)
    assert not found.config.shares


def test_presets_with_other_options():
    found = method_of("default+refine=false+ridge=0.01+shares=0.1:0.3", count=70)
    assert found.config == Config.preset(
        "default", refine=False, ridge=0.01, shares=(0.1, 0.3), count=70
    )
    assert found.name == "default+refine=false+ridge=0.01+shares=0.1:0.3"
    own = repairing(found.config, found.changed)
    assert (own.refine, own.ridge, own.repair) == (False, 0.01, True)
    assert repairing(found.config).refine
    unrepaired = method_of("default+repair=false")
    assert not unrepaired.config.repair
    assert method_of("default").options != unrepaired.options
    for wrong in ("default+refine", "default+refined=true", "default+ridge=soft"):
        with pytest.raises(InputError):
            method_of(wrong)


def test_unknown_methods_name_what_there_is():
    for name in ("l3", "l2-everywhere", "l2activation"):
        with pytest.raises(InputError, match="l2-global"):
            method_of(name)


def test_baselines_do_not_depend_on_the_default_preset(monkeypatch):
    before = method_of("l2-own").options
    monkeypatch.setitem(PRESETS, "default", Config(width=0.7, ridge=0.5, shares=(0.3,)))
    after = method_of("l2-own")
    assert after.options == before
    assert after.config.width == 0.5
    assert repairing(Config.preset("paper")).ridge == 0.5  # repair is the same for all
    assert repairing(Config.preset("paper")).repair


def test_all_stages_of_a_followed_allocation_and_two_seeds(weights, tmp_path, capsys):
    run = tmp_path / "run"
    words = _words(weights, run, "--methods", "l2-default,default", "--seeds", "2")
    assert main(words) == 0
    facts = json.loads(capsys.readouterr().out)
    assert [row["method"] for row in facts["cells"]] == ["l2-default", "default"]
    row = facts["cells"][0]
    assert row["differences"]["retrained"][1] >= 0
    assert facts["against"] == "default"
    assert facts["recipe"]["epochs"] == 2
    assert facts["images"] == 60
    by_seed = {(cell["method"], cell["seed"]): cell for cell in facts["by_seed"]}
    assert len(by_seed) == 4
    for seed in (0, 1):
        ours, theirs = by_seed["l2-default", seed], by_seed["default", seed]
        assert ours["layers"] == theirs["layers"]  # as much of every layer
        assert len(ours["epochs"]) == 2
        assert ours["stages"]["retrained"]["n"] == 60
    plans = [
        Plan.load(run / "plans" / "seed-0" / "kept" / f"{n}-0.5") for n in ("l2-default", "default")
    ]
    assert any(
        not np.array_equal(a.keep, b.keep)
        for a, b in zip(plans[0].layers, plans[1].layers, strict=True)
    )
    mean = np.mean([by_seed["l2-default", seed]["stages"]["masked"]["accuracy"] for seed in (0, 1)])
    assert row["masked"] == pytest.approx(mean)
    assert not any((run / "cells" / "default-0.5-seed0" / "training").glob("*"))


def test_only_the_stages_that_are_asked_for(weights, tmp_path, capsys):
    words = ["--methods", "l2", "--epochs", "0", "--stages", "batchnorm"]
    assert main(_words(weights, tmp_path / "run", *words)) == 0
    facts = json.loads(capsys.readouterr().out)
    assert list(facts["by_seed"][0]["stages"]) == ["batchnorm"]
    assert "repaired" not in facts["cells"][0]
    assert not (tmp_path / "run" / "cells" / "l2-0.5-seed0" / "repaired").exists()
    for stage in ("retrained", "maskt"):
        words[-1] = stage
        assert main(_words(weights, tmp_path / "run", *words)) == 2
        assert f"masked, batchnorm, repaired. Got '{stage}'" in capsys.readouterr().err


def _start(words: list[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "snacs", *words], start_new_session=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
    )  # fmt: skip


def _checkpoints(run: Path) -> int:
    """How many there are; unlike rglob, walk takes folders that come and go."""
    return sum(name.startswith("epoch-") for _, _, files in os.walk(run) for name in files)


def _without_times(facts: dict) -> dict:
    for cell in facts["by_seed"]:
        for row in cell["epochs"]:
            row.pop("seconds")
    return facts


def test_two_processes_and_a_kill_end_with_the_same_figures(weights, tmp_path, capsys):
    methods = ["--methods", "l2,l1-global"]
    assert main(_words(weights, tmp_path / "whole", *methods)) == 0
    whole = _without_times(json.loads(capsys.readouterr().out))
    run = tmp_path / "killed"
    victim = _start(_words(weights, run, *methods))
    while not _checkpoints(run) and victim.poll() is None:
        time.sleep(0.002)
    assert victim.poll() is None
    os.killpg(victim.pid, signal.SIGKILL)
    victim.communicate()
    pair = [_start(_words(weights, run, *methods)) for _ in range(2)]
    for process in pair:
        _, error = process.communicate(timeout=200)
        assert process.returncode == 0, error
    assert _without_times(json.loads((run / "compare.json").read_text())) == whole


def test_weights_and_data_are_found_by_themselves(weights, tmp_path, capsys, monkeypatch):
    folder = tmp_path / "zoo"
    folder.mkdir()
    monkeypatch.setenv("SNACS_WEIGHTS", str(folder))
    words = ["compare", "small-conv", "--images", "40", "--half", "dev", "--target", "50%"]
    words += ["--methods", "random", "--run", str(tmp_path / "run"), "--quiet", "--json"]
    assert main(words) == 2
    assert str(folder) in capsys.readouterr().err
    weights.rename(folder / "small-conv-digits.safetensors")
    assert main(words) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["images"], facts["half"]) == (225, "dev")
    (folder / "small-conv.safetensors").write_bytes(b"")
    assert main(words) == 2
    assert "several weights" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["l2-uniform", "information-global", "mint-default"])
def test_options_of_a_baseline_say_all_that_its_plan_depends_on(name):
    found = method_of(name)
    left = set(found.config.as_dict()) - set(found.options)
    of_repair = {"repair", "refine", "batchnorm", "logits", "ridge", "doubt", "solved_share"}
    in_order = {"repair", "ridge", "doubt"} if name.startswith("information") else set()
    assert left == of_repair - in_order
    assert not found.config.curves

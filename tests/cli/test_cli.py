"""The command line as a person uses it: real processes, real files, exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

from snacs.cli import main
from snacs.zoo.entry import seeded
from snacs.zoo.networks import SmallConvNet
from snacs.zoo.weights import save_weights


@pytest.fixture
def weights(tmp_path) -> Path:
    """Untrained weights are enough to see whether the commands do their work."""
    path = tmp_path / "w.safetensors"
    save_weights(seeded(SmallConvNet, seed=1), path)
    return path


def _snacs(*words: object, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "snacs", *map(str, words)]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=250)


def test_layers_is_a_dry_run_that_says_why(capsys):
    assert main(["layers", "resnet56", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    reasons = {row["name"]: row["kept_because"] for row in facts["layers"]}
    assert len(reasons) == 56
    assert [name for name, reason in reasons.items() if reason] == ["conv1", "linear"]
    assert main(["layers", "small-conv", "--ignore", "features.4"]) == 0
    text = capsys.readouterr().out
    assert "keep: " in text
    assert "23,824" in text


def test_plan_report_and_prune_share_a_run_folder(weights, tmp_path, capsys):
    common = ["small-conv", "--weights", str(weights), "--data", "digits", "--quiet"]
    common += ["--images", "100", "--run", str(tmp_path / "run"), "--json"]
    assert main(["plan", *common, "--target", "50%"]) == 0
    planned = json.loads(capsys.readouterr().out)
    assert planned["pruned"] == pytest.approx(0.5, abs=0.01)
    assert main(["prune", *common, "--target", "0.5"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["pruned"] == planned["pruned"]
    assert set(facts["accuracy"]) == {"dense", "pruned", "repaired"}
    assert json.loads((tmp_path / "run" / "result.json").read_text()) == facts
    pruned = load_file(tmp_path / "run" / "pruned.safetensors")
    assert sorted(pruned) == sorted(SmallConvNet().state_dict())
    kept = sum(int((pruned[f"{row['name']}.weight"] != 0).sum()) for row in facts["layers"])
    assert kept == facts["weights_kept"]
    assert main(["report", str(tmp_path / "run")]) == 0
    assert "features.4" in capsys.readouterr().out


def test_retrain_goes_on_from_a_prune_run(weights, tmp_path, capsys):
    common = ["small-conv", "--weights", str(weights), "--data", "digits", "--quiet", "--json"]
    run = str(tmp_path / "run")
    assert main(["prune", *common, "--images", "60", "--target", "0.5", "--run", run]) == 0
    before = json.loads(capsys.readouterr().out)
    assert main(["retrain", run, "--epochs", "3", "--quiet", "--json"]) == 0
    after = json.loads(capsys.readouterr().out)
    assert after["weights_kept"] == before["weights_kept"]
    assert after["accuracy"]["repaired"] == before["accuracy"]["repaired"]
    losses = [row["loss"] for row in after["epochs"]]
    assert len(losses) == 3
    assert losses[2] < losses[0]  # the untrained network has learnt something


def test_a_network_of_the_users_own_and_a_folder_of_images(tmp_path):
    """Nothing of it is in the zoo: its package, weights and pictures are made here."""
    package = tmp_path / "mypackage"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "net.py").write_text(
        "from torch import nn\n"
        "def build():\n"
        "    return nn.Sequential(nn.Conv2d(3, 6, 3), nn.ReLU(), nn.Conv2d(6, 8, 3), nn.ReLU(),\n"
        "        nn.Flatten(), nn.Linear(8 * 64, 12), nn.ReLU(), nn.Linear(12, 3))\n"
    )
    script = (
        "import sys; sys.path.insert(0, '.');"
        "from mypackage.net import build; from safetensors.torch import save_file;"
        "save_file(build().state_dict(), 'w.safetensors')"
    )
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path, check=True)
    rng = np.random.default_rng(0)
    for label, colour in enumerate(["red", "green", "blue"]):
        for split, count in (("train", 30), ("test", 5)):
            (tmp_path / "folder" / split / colour).mkdir(parents=True)
            for index in range(count):
                pixels = rng.integers(0, 60, (12, 12, 3), dtype=np.uint8)
                pixels[..., label] += 150
                name = tmp_path / "folder" / split / colour / f"{index}.png"
                Image.fromarray(pixels).save(name)
    done = _snacs(
        "prune", "mypackage.net:build", "--weights", "w.safetensors", "--data", "folder/",
        "--target", "0.7", folder=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "Dense and pruned" in done.stdout
    run = tmp_path / "runs" / "mypackage.net-build"
    facts = json.loads((run / "result.json").read_text())
    assert facts["pruned"] == pytest.approx(0.7, abs=0.01)
    assert (load_file(run / "pruned.safetensors")["2.weight"] == 0).any()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["layers", "resnet65"], "resnet56"),
        (["layers", "nowhere.net:build", "--shape", "3,8,8"], "no Python module"),
        (["layers", "small-conv", "--shape", "3;8"], "positive numbers"),
        (["layers", "small-conv", "--shape", "1,-8,8"], "positive numbers"),
        (["compare", "small-conv", "--weights", "W", "--images", "0"], "--images must be at least"),
        (["prune", "small-conv", "--data", "digits", "--target", "0.5"], "--weights"),
        (["prune", "small-conv", "--weights", "gone.safetensors", "--data", "digits"], "gone"),
        (["plan", "small-conv", "--weights", "W", "--data", "gone/", "--target", "0.5"], "gone"),
        (["plan", "small-conv", "--weights", "W", "--data", "digits", "--target", "7"], "0 and 1"),
        (["plan", "small-conv", "--weights", "W", "--data", "digits"], "target"),
        (
            ["plan", "small-conv", "--weights", "W", "--data", "digits", "--target", "0.5",
             "--set", "vieww=layer"],
            "view",
        ),
        (
            ["plan", "small-conv", "--weights", "W", "--data", "digits", "--target", "0.5",
             "--set", "seed=1"],
            "seed",
        ),
        (["demo", "--seeds", "0"], "'seeds'"),
        (["demo", "--target", "2"], "0 and 1"),
        (["compare", "small-conv", "--weights", "W", "--data", "digits", "--test-images", "0"],
         "--test-images"),
        (["compare", "small-conv", "--weights", "W", "--methods", "l2,l1", "--against", "paper"],
         "--against"),
        (["report", "gone"], "gone"),
        (["retrain", "gone", "--epochs", "1"], "gone"),
    ],
)  # fmt: skip
def test_mistakes_get_a_message_and_exit_code_2(weights, tmp_path, capsys, words, message):
    words = [str(weights) if word == "W" else word for word in words]
    if "plan" in words or "prune" in words:
        words += ["--run", str(tmp_path / "run"), "--images", "60"]
    assert main(words) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error


def test_usage_errors_exit_with_2(capsys):
    with pytest.raises(SystemExit) as caught:
        main(["plan", "small-conv", "--target", "much"])
    assert caught.value.code == 2
    assert "not a fraction" in capsys.readouterr().err


def test_an_unknown_option_gets_a_hint_and_no_prefix_is_guessed(capsys):
    for typed, meant in (("--retain", "--retrain"), ("--scor", "--score")):
        with pytest.raises(SystemExit) as caught:
            main(["prune", "small-conv", typed, "5"])
        assert caught.value.code == 2
        assert f"Did you mean '{meant}'? See snacs prune --help" in capsys.readouterr().err


def test_help_teaches_without_importing_torch(tmp_path):
    for command in (
        "layers", "plan", "prune", "retrain", "compare", "train", "reproduce", "report", "data",
        "demo",
    ):  # fmt: skip
        code = (
            "import sys, snacs.cli\n"
            "try: snacs.cli.main(sys.argv[1:])\n"
            "except SystemExit: pass\n"
            "assert 'torch' not in sys.modules"
        )
        done = subprocess.run(
            [sys.executable, "-c", code, command, "--help"],
            capture_output=True, text=True, cwd=tmp_path,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert "examples:" in done.stdout
        assert f"snacs {command}" in done.stdout


def test_our_own_mistakes_show_a_traceback_and_exit_with_1(tmp_path):
    code = (
        "import snacs.cli.commands as c, snacs.cli\n"
        "c.COMMANDS['layers'] = lambda a: 1 / 0\n"
        "raise SystemExit(snacs.cli.main(['layers', 'small-conv']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1
    assert "ZeroDivisionError" in done.stderr


def test_compare_prints_one_table_and_resumes(weights, tmp_path, capsys):
    words = ["compare", "small-conv", "--weights", str(weights), "--data", "digits", "--quiet"]
    words += ["--images", "60", "--test-images", "100", "--targets", "0.3,0.5"]
    words += ["--methods", "random,l2,mint,default", "--run", str(tmp_path / "run"), "--json"]
    assert main(words) == 0
    first = json.loads(capsys.readouterr().out)
    assert [(c["method"], c["target"]) for c in first["cells"]] == [
        (method, target) for method in ("random", "l2", "mint", "default") for target in (0.3, 0.5)
    ]
    assert all(abs(c["pruned"] - c["target"]) < 0.01 for c in first["cells"])
    kept = sorted((tmp_path / "run" / "cells" / "l2-0.3-seed0").rglob("measured.json"))
    assert len(kept) == 3
    stamps = [path.stat().st_mtime_ns for path in kept]
    assert main(words) == 0
    assert json.loads(capsys.readouterr().out) == first
    assert [path.stat().st_mtime_ns for path in kept] == stamps


def test_torch_is_deterministic_here():
    """The comparisons above rely on it: the same network twice gives the same bits."""
    model = seeded(SmallConvNet, seed=0).eval()
    x = torch.randn(8, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    assert torch.equal(model(x), model(x))

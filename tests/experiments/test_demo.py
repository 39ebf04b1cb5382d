"""The demo keeps its promise: most weights gone, accuracy kept, every part at work."""

from __future__ import annotations

import json

import pytest

from snacs.cli import main


@pytest.mark.slow
def test_three_seeds_lose_most_weights_and_keep_their_accuracy(tmp_path, capsys):
    assert main(["demo", "--seeds", "3", "--run", str(tmp_path), "--quiet", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    lost = [
        seed["accuracy"]["dense"]["fraction"] - seed["accuracy"]["retrained"]["fraction"]
        for seed in facts
    ]
    assert len(facts) == 3
    assert min(seed["pruned"] for seed in facts) >= 0.75
    assert sum(lost) / 3 <= 0.010


def test_one_seed_runs_resumes_and_leaves_its_files(tmp_path, capsys, monkeypatch):
    from snacs.experiments import demo as module
    from snacs.training import Recipe

    monkeypatch.setattr(module, "TRAINING", Recipe(epochs=2, learning_rate=0.05))
    monkeypatch.setattr(module, "RETRAINING", Recipe(epochs=1, learning_rate=0.02))
    words = ["demo", "--run", str(tmp_path), "--quiet", "--json"]
    assert main(words) == 0
    first = json.loads(capsys.readouterr().out)
    assert first[0]["pruned"] == pytest.approx(0.8, abs=0.01)
    assert list(first[0]["accuracy"]) == ["dense", "pruned", "repaired", "retrained"]
    for name in ("dense.safetensors", "pruned.safetensors", "result.json", "run/plan/plan.json"):
        assert (tmp_path / "seed-0" / name).exists()
    assert main(words) == 0
    again = json.loads(capsys.readouterr().out)
    assert again[0]["accuracy"] == first[0]["accuracy"]

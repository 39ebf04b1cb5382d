"""Every experiment on a network: the command writes JSON, Markdown and figures, and resumes."""

from __future__ import annotations

import json

import pytest
import torch

from snacs.cli import main
from snacs.experiments.phi import PUBLISHED as SCALINGS
from snacs.experiments.saved_share import PUBLISHED as SHARES
from snacs.zoo.entry import seeded
from snacs.zoo.networks import SmallConvNet
from snacs.zoo.weights import save_weights

PNG, SVG = b"\x89PNG", b"<?xml"


@pytest.fixture(autouse=True)
def small(tmp_path, monkeypatch):
    """A small untrained network where it is looked for; one thread is faster for it."""
    monkeypatch.setenv("SNACS_WEIGHTS", str(tmp_path))
    save_weights(seeded(SmallConvNet, seed=0), tmp_path / "small-conv.safetensors")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def _run(capsys, folder, what: str, *more: str) -> dict:
    words = ["reproduce", what, "--network", "small-conv", "--images", "40", "--test-images", "40"]
    words += ["--run", str(folder), "--quiet", "--json", "--jobs", "1", *more]
    assert main(words) == 0
    first = json.loads(capsys.readouterr().out)
    assert json.loads((folder / f"{what}.json").read_text()) == first
    text = (folder / f"{what}.md").read_text()
    assert text.startswith(f"    snacs reproduce {what} --network small-conv")
    assert all(sentence in text for sentence in first["differs"])
    for path in folder.glob("*.png"):
        assert path.read_bytes().startswith(PNG)
        assert path.with_suffix(".svg").read_bytes().startswith(SVG)
    assert list(folder.glob("*.png"))
    assert main(words) == 0
    second = json.loads(capsys.readouterr().out)
    assert {**second, "minutes": 0} == {**first, "minutes": 0}
    return first


def test_phi_measures_all_seven(tmp_path, capsys):
    facts = _run(capsys, tmp_path / "run", "phi", "--target", "0.5")
    assert [row["method"] for row in facts["rows"]] == list(SCALINGS)
    assert all(abs(row["pruned"] - 0.5) < 0.02 for row in facts["rows"])
    assert "| 1 |" in (tmp_path / "run" / "phi.md").read_text()


def test_layers_are_compared_with_mint(tmp_path, capsys):
    facts = _run(capsys, tmp_path / "run", "layers", "--target", "0.5")
    assert list(facts["series"]) == ["default", "paper", "MINT"]
    assert len(facts["agreement"]) == 3
    assert facts["numbers"] == sorted(facts["numbers"])


def test_sensitivity_and_retraining(tmp_path, capsys):
    facts = _run(
        capsys, tmp_path / "run", "sensitivity", "--target", "0.5", "--retrain", "1",
        "--train-images", "40", "--batch-size", "20",
    )  # fmt: skip
    assert [row["method"] for row in facts["rows"]] == ["paper-unprotected", "paper"]
    assert all("retrained" in row for row in facts["rows"])
    assert {"without %", "with %", "protected %"} <= set(facts["limits"][0])


def test_all_fourteen_shares_are_saved(tmp_path, capsys):
    facts = _run(
        capsys, tmp_path / "run", "saved-share", "--target", "0.4", "--convolutions", "2,3"
    )
    saved = [row["saved %"] for row in facts["rows"]]
    assert saved == [row[0] for rows in SHARES.values() for row in rows]
    for row in facts["rows"]:
        assert row["sparsity %"] <= 1 - row["saved %"] + 0.05  # protected rows lose nothing


def test_masks_show_protected_rows(tmp_path, capsys):
    facts = _run(capsys, tmp_path / "run", "masks", "--target", "0.4", "--convolutions", "2,3")
    assert [row["convolution"] for row in facts["rows"]] == [2, 3]
    assert all(row["protected filters"] > 0 for row in facts["rows"])


def test_curves_are_cut_at_the_threshold(tmp_path, capsys):
    facts = _run(capsys, tmp_path / "run", "curves", "--target", "0.4", "--presets", "paper")
    found = facts["presets"]["paper"]
    assert found["reading"] == "absolute"
    assert 0 < found["threshold"] <= 1
    assert (tmp_path / "run" / "curves-paper.svg").exists()


def test_single_shot_takes_ours_from_main(tmp_path, capsys):
    cell = {"method": "default", "pruned": 0.7, "epochs": [{}, {}]}
    cell["stages"] = {"repaired": {"accuracy": 0.5}, "retrained": {"accuracy": 0.9}}
    made = {"network": "resnet56", "cells": [cell], "dense": {"accuracy": 0.93}}
    (tmp_path / "main.json").write_text(json.dumps(made))
    words = ["reproduce", "single-shot", "--run", str(tmp_path / "run"), "--quiet", "--json"]
    assert main([*words, "--results", str(tmp_path / "main.json")]) == 0
    facts = json.loads(capsys.readouterr().out)
    rows = next(rows for title, rows in facts["tables"].items() if title.startswith("resnet56"))
    mine = [row for row in rows if row["kind"] == "ours"]
    assert [(row["pruned %"], row["accuracy %"]) for row in mine] == [(0.7, 0.9)]
    assert {row["kind"] for row in rows} == {"single-shot", "iterative", "ours"}
    assert main([*words, "--results"]) == 0
    assert any(
        "ours are missing" in text for text in json.loads(capsys.readouterr().out)["differs"]
    )
    (tmp_path / "main.json").write_text("{}")
    assert main([*words, "--results", str(tmp_path / "main.json")]) == 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["masks", "--convolutions", "1,2"], "kept"),
        (["masks", "--convolutions", "99"], "layers 1 to"),
        (["masks", "--convolutions", "two"], "numbers"),
        (["phi", "--target", "much"], "fractions"),
        (["main", "--recipe", "none"], "recipe"),
        (["main", "--device", "abacus"], "abacus"),
    ],
)
def test_mistakes_are_told(tmp_path, capsys, words, message):
    common = ["--network", "small-conv", "--images", "40", "--run", str(tmp_path / "r"), "--quiet"]
    assert main(["reproduce", *words, *common]) == 2
    assert message in capsys.readouterr().err

"""The main table: the paper's limits cost what it says, and the command resumes."""

from __future__ import annotations

import json
from functools import cache

import pytest
import torch

from snacs.cli import main
from snacs.cli.timing import OutOfTime, seconds_of, until
from snacs.errors import InputError
from snacs.experiments.gammas import paper_limits
from snacs.experiments.main import _limits_rows, _published, apply_limits
from snacs.experiments.published import RIVALS, SNACS
from snacs.network.layers import find_structure
from snacs.zoo.entry import seeded
from snacs.zoo.networks import NETWORKS, SmallConvNet
from snacs.zoo.weights import save_weights


@pytest.fixture
def weights(tmp_path, monkeypatch):
    """Untrained, where they are looked for."""
    monkeypatch.setenv("SNACS_WEIGHTS", str(tmp_path))
    save_weights(seeded(SmallConvNet, seed=0), tmp_path / "small-conv.safetensors")
    return tmp_path


@pytest.mark.parametrize(
    ("network", "sensitivity", "pruned", "macs"),
    [
        ("resnet56", False, 0.6858, 0.368),
        ("resnet56", True, 0.6896, 0.374),
        ("resnet50", False, 0.6880, 0.5808),
        ("vgg16", False, 0.9363, 0.8406),
    ],
)
def test_the_papers_limits_cost_what_facts_say(network, sensitivity, pruned, macs):
    found = apply_limits(_structure(network), paper_limits(network, sensitivity=sensitivity))
    assert found.pruned == pytest.approx(pruned, abs=0.0005)
    assert 1 - found.macs_kept / found.macs == pytest.approx(macs, abs=0.001)


def test_published_rows_are_fractions():
    for rows in (*SNACS.values(), *RIVALS.values()):
        for row in rows:
            assert 0 < row.pruned < 1
            assert 0.6 < row.accuracy < 1
            assert row.kind in ("single-shot", "iterative", "objective")


def test_main_stops_at_its_budget_and_goes_on(weights, capsys):
    words = ["reproduce", "main", "--network", "small-conv", "--target", "60%", "--epochs", "1"]
    words += ["--images", "40", "--test-images", "50", "--train-images", "50", "--quiet"]
    words += ["--batch-size", "25", "--run", str(weights / "run"), "--json"]
    assert main([*words, "--budget", "0.1s"]) == 0
    assert not (weights / "run" / "main.json").exists()
    capsys.readouterr()
    assert main(words) == 0
    facts = json.loads(capsys.readouterr().out)
    assert [cell["method"] for cell in facts["cells"]] == ["default", "paper"]
    for cell in facts["cells"]:
        assert cell["pruned"] == pytest.approx(0.6, abs=0.01)
        assert set(cell["stages"]) == {"masked", "batchnorm", "repaired", "retrained"}
    assert (weights / "run" / "main.svg").exists()
    text = (weights / "run" / "main.md").read_text()
    assert "snacs reproduce main --network small-conv --target 60% --epochs 1" in text
    assert "| paper | 60.0" in text
    assert "KL from dense" in text
    stamps = [path.stat().st_mtime_ns for path in (weights / "run").rglob("masked.safetensors")]
    assert main(words) == 0
    again = [path.stat().st_mtime_ns for path in (weights / "run").rglob("masked.safetensors")]
    assert again == stamps


def test_the_paper_stands_beside_its_networks():
    rows = _limits_rows("resnet56", _structure("resnet56"))
    assert [row["paper %"] for row in rows] == [0.6859, 0.6896]
    assert [row["accuracy %"] for row in _published("resnet50")] == [0.7465, 0.736, 0.729, 0.7236]


@cache
def _structure(network):
    entry = NETWORKS[network]
    return find_structure(entry.build().eval(), torch.zeros(2, *entry.shape))


def test_budgets_are_times():
    assert seconds_of("20m") == 1200
    for text in ("20", "-1h", "0s", "soon"):
        with pytest.raises(InputError, match="30m"):
            seconds_of(text)
    seen = []
    watch = until(0.0, lambda *words: seen.append(words))
    with pytest.raises(OutOfTime, match="train"):
        watch("train", 1, 2)
    assert seen == [("train", 1, 2, "")]

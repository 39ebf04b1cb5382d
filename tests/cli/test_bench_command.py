"""``snacs bench``: from a zoo name, a file, a run folder; figures are kept where they belong."""

from __future__ import annotations

import json

import pytest
import torch

import snacs
from snacs.cli import main
from snacs.reporting.folder import read_findings
from snacs.store import Run
from snacs.zoo.networks import NETWORKS
from snacs.zoo.weights import save_weights

QUICK = ["--batches", "2", "--seconds", "0.01", "--no-memory", "--no-onnx"]


@pytest.fixture
def three() -> list[str]:
    return ["torch, dense", "torch, compacted", "snacs, sparse"]


def shown(capsys, *words: str) -> dict:
    assert main(["bench", *words, *QUICK, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_zoo_network_with_uniform_masks(capsys, three, tmp_path):
    words = ["small-resnet", "--masks", "uniform:0.8", "--run", str(tmp_path)]
    found = shown(capsys, *words)
    assert [row["what"] for row in found["rows"]] == three
    # 80 % of every layer but the first and the last.
    assert 4.5 < found["rows"][2]["ideal"] < 5
    assert json.loads((tmp_path / "bench.json").read_text()) == found


def test_a_saved_network(capsys, three, tmp_path):
    model = NETWORKS["small-conv"].build().eval()
    snacs.save(model, tmp_path / "net.snacs", example=torch.randn(2, 1, 8, 8))
    found = shown(capsys, str(tmp_path / "net.snacs"))
    assert [row["what"] for row in found["rows"]] == three
    assert found["rows"][2]["ideal"] == 1
    assert any("Compacting takes out nothing" in note for note in found["notes"])


def test_a_plan_and_a_run_folder(capsys, three, tmp_path):
    torch.manual_seed(0)
    model = NETWORKS["small-conv"].build().eval()
    images = [(torch.randn(60, 1, 8, 8), torch.arange(60) % 10)]
    plan = snacs.plan(model, images, target=0.6, score="l2", allocation="uniform")
    run = tmp_path / "run"
    with Run(run) as made:
        made.note(arguments={"network": "small-conv"})
    plan.save(run / "plan")
    found = shown(capsys, "small-conv", "--masks", str(run / "plan"))
    assert found["rows"][2]["ideal"] > 1.5
    assert main(["bench", str(run), *QUICK]) == 2
    assert "no network that was pruned by its plan" in capsys.readouterr().err


def test_a_run_folder_and_a_later_plan_in_it(capsys, three, tmp_path):
    torch.manual_seed(0)
    weights, run = tmp_path / "w.safetensors", tmp_path / "run"
    save_weights(NETWORKS["small-conv"].build(), weights, normalisation=None)
    common = ["small-conv", "--weights", str(weights), "--data", "digits", "--images", "60"]
    common += ["--run", str(run), "--score", "l2", "--no-repair", "--quiet"]
    assert main(["prune", *common, "--target", "0.6"]) == 0
    capsys.readouterr()
    found = shown(capsys, str(run))
    assert found["rows"][2]["ideal"] > 1.5
    assert read_findings(run).bench[0]["what"] == three[0]
    small = tmp_path / "small.snacs"
    assert main(["compact", str(run), "-o", str(small)]) == 0
    assert snacs.artifact.inspect(small).provenance["network"] == "small-conv"
    assert main(["plan", *common, "--target", "0.3"]) == 0
    capsys.readouterr()
    assert main(["bench", str(run), *QUICK]) == 2  # the weights are of the plan before
    assert "no network that was pruned by its plan" in capsys.readouterr().err
    assert read_findings(run).bench == ()  # and so are the times


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["small-conv", "--masks", "uniform:1.5"], "share in [0, 1)"),
        (["small-conv", "--masks", "nothing"], "folder of a plan"),
        (["small-conv", "--masks", "gamma"], "The paper prints limits for"),
        (["small-conv", "--batches", "one"], "--batches must be numbers"),
        (["small-conv", "--threads", "0"], "--threads must be at least 1"),
    ],
)
def test_mistakes_are_explained(capsys, words, message):
    assert main(["bench", *words]) == 2
    assert message in capsys.readouterr().err

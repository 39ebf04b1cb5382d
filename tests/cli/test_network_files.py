"""``snacs compact`` and ``snacs export`` from pruned weights to files that others can read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import snacs
from snacs.cli import main
from snacs.network.masking import bake_
from snacs.zoo.entry import Normalisation
from snacs.zoo.networks import NETWORKS
from snacs.zoo.weights import save_weights


@pytest.fixture
def pruned(tmp_path: Path) -> tuple[Path, torch.nn.Module]:
    torch.manual_seed(0)
    model = NETWORKS["small-conv"].build().eval()
    x = torch.rand(64, 1, 8, 8)
    options = {"score": "l2", "allocation": "uniform", "granularity": "filter"}
    plan = snacs.plan(model, [(x, torch.arange(64) % 10)], target=0.5, **options)
    snacs.apply_(model, plan)
    bake_(model)
    path = tmp_path / "pruned.safetensors"
    save_weights(model, path, normalisation=Normalisation((0.5,), (0.25,)))
    return path, model


def test_compact_then_export(
    pruned: tuple[Path, torch.nn.Module], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    weights, model = pruned
    small = tmp_path / "small.snacs"
    words = ["compact", "small-conv", "--weights", str(weights), "-o", str(small), "--json"]
    assert main(words) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["standalone"]
    assert facts["removed_filters"] > 0
    x = torch.rand(3, 1, 8, 8)
    with torch.no_grad():
        wanted = model(x)
        # Fewer filters only reorder float32 sums.
        torch.testing.assert_close(snacs.load(small)(x), wanted, rtol=1e-5, atol=1e-5)
    provenance = snacs.artifact.inspect(small).provenance
    assert provenance["normalisation"] == {"mean": [0.5], "std": [0.25]}
    assert provenance["input_shape"] == [1, 8, 8]
    runtime = pytest.importorskip("onnxruntime")
    onnx, plain = tmp_path / "net.onnx", tmp_path / "plain.safetensors"
    assert main(["export", str(small), "--onnx", str(onnx), "--safetensors", str(plain)]) == 0
    assert "multiply-adds per image" in capsys.readouterr().out
    session = runtime.InferenceSession(str(onnx), providers=["CPUExecutionProvider"])
    found = torch.from_numpy(session.run(None, {"input": x.numpy()})[0])
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)
    assert set(load_file(plain)) == set(model.state_dict())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["export", "small-conv", "--weights", "w"], "Say what to write"),
        (["export", "small-conv", "--onnx", "n.onnx"], "Give the pruned weights"),
        (["export", "none.snacs", "--onnx", "n.onnx"], "There is no file"),
        (["export", "none.snacs", "--weights", "w", "--onnx", "n.onnx"], "its own weights"),
        (["compact", "small-conv", "--weights", "none", "-o", "s.snacs"], "no weights file"),
    ],
)
def test_mistakes(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    assert message in capsys.readouterr().err


def test_what_is_read_is_not_written_over(
    pruned: tuple[Path, torch.nn.Module], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    weights, _ = pruned
    before = weights.read_bytes()
    words = ["export", "small-conv", "--weights", str(weights)]
    assert main([*words, "--safetensors", str(weights)]) == 2
    assert "Give the output another name" in capsys.readouterr().err
    assert weights.read_bytes() == before
    assert main([*words, "--safetensors", str(tmp_path)]) == 2
    assert "folder or a device" in capsys.readouterr().err

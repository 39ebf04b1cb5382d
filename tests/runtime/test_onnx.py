"""ONNX files: accepted by the checker, equal to torch, any batch, and honest about zeros."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from snacs.errors import InputError, ModelError
from snacs.network.cost import cost
from snacs.network.layers import find_structure
from snacs.network.masking import apply_
from snacs.runtime.onnx import export
from snacs.zoo.networks import NETWORKS
from snacs.zoo.weights import load_weights_

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

WEIGHTS = {
    "vgg16": "vgg16-cifar10-fp16",
    "resnet56": "resnet56-cifar10",
    "resnet50": "resnet50-imagenet-v1-fp16",
}


def images(*shape: int, count: int = 2) -> Tensor:
    return torch.randn(count, *shape, generator=torch.Generator().manual_seed(0))


def outputs(path: Path, x: Tensor) -> np.ndarray:
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return session.run(None, {"input": x.numpy()})[0]


def prune(model: nn.Module, x: Tensor, *, dead: slice, share: float) -> dict[str, np.ndarray]:
    """Kill some filters of every layer, and a share of all other connections."""
    structure = find_structure(model, x)
    random = np.random.default_rng(0)
    masks = {
        layer.name: random.random((layer.c_out, layer.c_in)) >= share
        for layer in structure.prunable
    }
    for keep in masks.values():
        keep[:, 0] = True
        keep[dead] = False
    apply_(model, masks, structure=structure)
    return masks


def test_a_pruned_network_is_exported_smaller_and_equal(tmp_path: Path) -> None:
    x = images(1, 8, 8)
    model = NETWORKS["small-resnet"].build().eval()
    masks = prune(model, x, dead=slice(1, None, 2), share=0.5)
    counted = cost(find_structure(model, x), masks)
    report = export(model, x, tmp_path / "net.onnx")
    assert report.difference <= 1e-4
    assert report.macs == counted.macs
    assert report.macs_exported == counted.macs_compacted < counted.macs
    assert report.macs_kept < report.macs_exported
    assert report.bytes == report.path.stat().st_size
    whole = export(model, x, tmp_path / "whole.onnx", compact=False)
    assert whole.macs_exported == counted.macs
    assert whole.macs_kept == counted.macs_kept
    assert report.bytes < whole.bytes
    for count in (1, 5):
        more = images(1, 8, 8, count=count)
        with torch.no_grad():
            wanted = model(more).numpy()
        # 1e-4 of outputs of order 1: onnxruntime fuses and reorders float32 sums.
        np.testing.assert_allclose(outputs(report.path, more), wanted, rtol=1e-4, atol=1e-4)
    text = str(report)
    assert "by removing whole filters" in text
    assert "with zeros, which ONNX computes like any other" in text


def test_a_dense_network_has_nothing_left_to_gain(tmp_path: Path) -> None:
    model = NETWORKS["small-conv"].build().eval()
    report = export(model, (images(1, 8, 8), torch.zeros(2)), tmp_path / "net.onnx")
    assert report.macs == report.macs_exported == report.macs_kept
    assert "Not gained" not in str(report)


def test_resnet56_with_corrected_padding(tmp_path: Path) -> None:
    """Its pool is global: small images make the same file."""
    x = images(3, 8, 8)
    model = NETWORKS["resnet56"].build().eval()
    prune(model, x, dead=slice(2, None, 3), share=0.0)
    report = export(model, x, tmp_path / "net.onnx")
    assert report.macs_exported < 0.7 * report.macs
    assert report.difference <= 1e-4


@pytest.mark.slow
@pytest.mark.shared
@pytest.mark.parametrize("name", WEIGHTS)
def test_real_networks(name: str, shared: Path, tmp_path: Path) -> None:
    entry = NETWORKS[name]
    model = entry.build().eval()
    load_weights_(model, shared / "weights" / f"{WEIGHTS[name]}.safetensors")
    x = images(*entry.shape)
    prune(model, x, dead=slice(2, None, 3), share=0.5)
    report = export(model, x, tmp_path / "net.onnx")
    assert report.difference <= 1e-4
    assert report.macs_exported < report.macs


class Named(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 3), nn.Linear(2, 3)

    def forward(self, left: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
        return self.a(left) + self.b(right), self.a(left)


def test_named_inputs_and_several_outputs(tmp_path: Path) -> None:
    batch = {"left": images(4), "right": images(2), "labels": torch.zeros(2, dtype=torch.long)}
    report = export(Named(), batch, tmp_path / "net.onnx")
    session = onnxruntime.InferenceSession(str(report.path), providers=["CPUExecutionProvider"])
    assert [item.name for item in session.get_inputs()] == ["left", "right"]
    assert [item.name for item in session.get_outputs()] == ["output", "output1"]


class Frozen(nn.Module):
    """Writes the batch size down; no other batch can be run."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(x.reshape(int(x.shape[0]), 8))


class Branching(nn.Module):
    """Takes another way for other data; a trace knows only one of them."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(x) if bool(x.shape[0] == 2) else self.fc(x) + 1


def test_what_a_trace_freezes_is_found(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"on 1 image\(s\)|differ from torch"):
        export(Frozen(), images(2, 4), tmp_path / "net.onnx", compact=False)
    with pytest.raises(ModelError, match="differ from torch"):
        export(Branching(), images(4), tmp_path / "net.onnx", compact=False)
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_exported_says_so(tmp_path: Path) -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            return torch.special.bessel_j0(self.fc(x))

    with pytest.raises(ModelError, match="cannot export"):
        export(Odd(), images(4), tmp_path / "net.onnx")
    with pytest.raises(InputError, match="dict of tensors"):
        export(
            Named(),
            {"left": images(4), "right": images(2), "x": 3},
            tmp_path / "n.onnx",
            compact=False,
        )


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(InputError, match=r"pip install 'snacs\[onnx\]'"):
        export(nn.Linear(2, 2), images(2), tmp_path / "net.onnx")

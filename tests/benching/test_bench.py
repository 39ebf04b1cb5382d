"""Side by side: every contender is measured, counted and judged; no claim about time itself."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import snacs
from snacs.benching.contenders import count_macs
from snacs.benching.verdict import DENSE, verdict
from snacs.errors import InputError
from snacs.zoo.networks import NETWORKS


def half_dead() -> nn.Module:
    """Half of the first layer's filters are dead, and a quarter of the rest of it."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.ReLU(), nn.Conv2d(8, 4, 1, bias=False)
    )
    with torch.no_grad():
        model[0].weight[:4] = 0
        model[0].weight[4, :] = 0
        model[0].weight[4, 0] = 1
    return model.eval()


def test_rows_layers_and_notes():
    model = half_dead()
    found = snacs.bench(model, torch.randn(2, 3, 6, 6), batches=(1, 3), seconds=0.01, memory=False)
    names = [row["what"] for row in found.rows if row["batch"] == 1]
    assert names == [
        *("torch, dense", "torch, compacted", "snacs, sparse"),
        *("onnxruntime, dense", "onnxruntime, compacted"),
    ]
    assert len(found.rows) == 10
    for row in found.rows:
        assert 0 < row["best_ms"] <= row["median_ms"]
        assert row["rounds"] >= 5
        assert row["file_mb"] > 0
        assert row["of_ideal"] == pytest.approx(row["speedup_best"] / row["ideal"], rel=0.01)
    files = {row["what"]: row["file_mb"] for row in found.rows}
    assert files["torch, dense"] >= 4 * sum(p.numel() for p in model.parameters()) / 1e6
    ideal = {row["what"]: row["ideal"] for row in found.rows}
    # 8·27·36 + 32·36 MACs; compacted 4·27·36 + 16·36; kept (3·27 + 9)·36 + 16·36.
    assert ideal["torch, dense"] == 1
    assert ideal["torch, compacted"] == pytest.approx(248 / 124, abs=1e-3)
    assert ideal["snacs, sparse"] == pytest.approx(248 / 106, abs=1e-3)
    assert [row["name"] for row in found.layers if row["batch"] == 3] == ["0", "2"]
    assert any("Batch 3" in note for note in found.notes)
    assert found.as_dict()["rows"] == list(found.rows)


def test_peak_memory_is_measured_in_a_process_of_its_own():
    model = NETWORKS["small-conv"].build().eval()
    found = snacs.bench(
        model, torch.randn(2, 1, 8, 8), batches=(2,), seconds=0.01, onnx=False, memory=True
    )
    peaks = [row["peak_mb"] for row in found.rows]
    assert len(peaks) == 3
    assert all(peak is not None and 0 < peak < 2000 for peak in peaks)


def test_macs_with_and_without_zeros():
    model, x = half_dead(), torch.randn(2, 3, 6, 6)
    assert count_macs(model, x) == 36 * (8 * 27 + 32)
    assert count_macs(model, x, kept=True) == 36 * (3 * 27 + 9 + 32)


def test_the_verdict_says_plainly_when_nothing_is_gained():
    dense = {"what": DENSE, "batch": 16, "speedup_best": 1.0, "ideal": 1.0, "of_ideal": 1.0}
    sparse = {**dense, "what": "snacs, sparse", "speedup_best": 0.8, "ideal": 1.1}
    rival = {**dense, "what": "onnxruntime, dense", "speedup_best": 1.6}
    small = {**dense, "what": "torch, compacted"}
    first, second = verdict([dense, small, sparse, rival], [])
    assert "no speed-up" in first
    assert "only 9% of the multiply-adds are gone" in first
    assert "0.50× dense onnxruntime" in first
    assert "no whole filter is dead" in second
    layers = [{"name": "conv9", "batch": 16, "seconds": 1.0, "ideal": 2.0}]
    assert "conv9" in verdict([dense, {**sparse, "ideal": 2.0}], layers)[0]
    assert "0.80" in verdict([dense, {**sparse, "ideal": 2.0}], layers)[0]


def test_wrong_arguments_are_named():
    with pytest.raises(InputError, match="batch sizes of at least 1"):
        snacs.bench(half_dead(), torch.randn(2, 3, 6, 6), batches=(0,))
    with pytest.raises(InputError, match="positive time"):
        snacs.bench(half_dead(), torch.randn(2, 3, 6, 6), seconds=float("nan"))
    with pytest.raises(InputError, match="example batch"):
        snacs.bench(half_dead(), "images")

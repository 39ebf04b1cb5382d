"""How batches are read, moved and run."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from snacs.errors import InputError, ModelError
from snacs.network import batches

X = torch.arange(12.0).reshape(4, 3)
Y = torch.tensor([0, 1, 2, 1])


@pytest.mark.parametrize("batch", [X, (X, Y), [X, Y], {"input": X, "labels": Y}])
def test_every_form_is_run_and_measured(batch: Any) -> None:
    out = batches.run(nn.Identity(), batch)
    assert torch.equal(out, X)
    assert batches.size_of(batch) == 4


@pytest.mark.parametrize(
    "batch", [(X, Y), [X, [0, 1, 2, 1]], {"x": X, "label": Y}, {"x": X, "y": Y.int()}]
)
def test_labels_are_found(batch: Any) -> None:
    labels = batches.labels_of(batch)
    assert labels is not None
    assert labels.dtype == torch.long
    assert torch.equal(labels, Y)


@pytest.mark.parametrize("batch", [X, (X,), {"x": X}])
def test_no_labels_are_none(batch: Any) -> None:
    assert batches.labels_of(batch) is None


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (Y.float(), "whole numbers"),
        (Y.bool(), "whole numbers"),
        (Y[:3], r"shape \(4,\)"),
        (Y[:, None], r"shape \(4,\)"),
        (Y - 1, "negative"),
    ],
)
def test_bad_labels(labels: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        batches.labels_of((X, labels))


@pytest.mark.parametrize("output", [X, (X, 1), [X], {"logits": X}, {"aux": Y, "out": X}])
def test_logits_are_found(output: Any) -> None:
    assert torch.equal(batches.logits_of(output), X)


@pytest.mark.parametrize("output", [X[0], "text", {"scores": X}, None, ()])
def test_what_is_no_score_table_is_refused(output: Any) -> None:
    with pytest.raises(ModelError, match="class scores"):
        batches.logits_of(output)


def test_a_failing_forward_says_what_it_was_given() -> None:
    with pytest.raises(ModelError, match=r"float32\(4, 3\).*RuntimeError"):
        batches.run(nn.Linear(5, 2), X)


def test_errors_of_our_own_pass_through() -> None:
    def forward(model: nn.Module, batch: Any) -> Any:
        raise InputError("ours")

    with pytest.raises(InputError, match=r"^ours$"):
        batches.run(nn.Identity(), X, forward)


def test_move_takes_the_networks_floating_type_and_leaves_integers() -> None:
    moved = batches.move({"x": X, "y": (Y, "name")}, nn.Linear(3, 2).double())
    assert moved["x"].dtype == torch.float64
    assert moved["y"][0].dtype == torch.long
    assert moved["y"][1] == "name"
    assert batches.move(X, nn.Identity()) is X


def test_nothing_to_measure() -> None:
    with pytest.raises(InputError, match="at least one tensor"):
        batches.size_of(("a", 1))


def test_describe() -> None:
    assert batches.describe({"x": X, "y": [Y, 3]}) == "{x: float32(4, 3), y: (int64(4,), int)}"


def test_evaluating_restores_every_mode_also_after_an_error() -> None:
    net = nn.Sequential(nn.Dropout(), nn.Sequential(nn.BatchNorm1d(3))).train()
    net[1].eval()

    def modes() -> list[bool]:
        return [module.training for module in net.modules()]

    before = modes()
    with batches.evaluating(net):
        assert modes() == [False] * 4
        assert not torch.is_grad_enabled()
    assert modes() == before
    with pytest.raises(KeyError), batches.evaluating(net):
        raise KeyError
    assert modes() == before


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_move_to_cuda() -> None:
    assert batches.move(X, nn.Linear(3, 2).cuda()).is_cuda

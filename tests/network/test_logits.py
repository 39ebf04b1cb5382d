"""One step for the logits: its derivatives, what it reaches, and where it is not taken."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import nn

from snacs.network import logits, masking
from snacs.network.layers import find_structure
from snacs.network.logits import approach_, solution, why_not
from snacs.network.repair import repair_


class Net(nn.Module):
    """A residual block, a BatchNorm that is called twice, another one on flat features."""

    def __init__(self, classes=3):
        super().__init__()
        self.stem, self.conv = nn.Conv2d(2, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1)
        self.bn, self.flat = nn.BatchNorm2d(4), nn.BatchNorm1d(4)
        self.act, self.fc = nn.ReLU(inplace=True), nn.Linear(4, classes)

    def forward(self, x):
        x = self.act(self.bn(self.stem(x)))
        x = self.act(self.bn(self.conv(x)) + x)
        return self.fc(self.flat(x.mean((2, 3))))


def net(kind=Net, seed=0):
    torch.manual_seed(seed)
    model = kind()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d | nn.BatchNorm1d):
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.normal_(module.bias)
            module.running_mean.normal_()
            module.running_var.uniform_(0.5, 2.0)
    return model.eval()


def images(count=20, seed=1):
    return torch.randn(count, 2, 6, 6, generator=torch.Generator().manual_seed(seed))


def centred(model, x):
    with torch.no_grad():
        found = model(x)
    return found - found.mean(dim=1, keepdim=True)


def test_sums_are_those_of_finite_differences():
    model, x = net().double(), images(40).double()
    batches = [x[:25], x[25:]]
    with torch.no_grad():
        target = [net(seed=5).double()(batch) for batch in batches]
    norms = logits.norms_of(model)
    gram, right, rows = logits.derived(model, norms, batches, target, None, None)
    assert rows == 40 * 3
    columns = []
    for column in range(16):
        moved = []
        for sign in (1, -1):
            other, change = copy.deepcopy(model), torch.zeros(16).double()
            change[column] = sign * 1e-5
            logits.change_(logits.norms_of(other), change)
            moved.append(centred(other, x))
        columns.append(((moved[0] - moved[1]) / 2e-5).reshape(-1))
    slopes = torch.stack(columns, dim=1)
    wanted = torch.cat(target)
    lacks = wanted - wanted.mean(dim=1, keepdim=True) - centred(model, x)
    torch.testing.assert_close(gram, slopes.T @ slopes, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(right, slopes.T @ lacks.reshape(-1), rtol=1e-5, atol=1e-6)


def test_small_columns_are_not_blown_up_and_empty_ones_stay_zero():
    gram = torch.diag(torch.tensor([4.0, 1e-12, 0.0]))
    found = solution(gram, torch.tensor([2.0, 1e-6, 0.0]), 1.0)
    assert found[0] == pytest.approx(0.5 / 2)  # half of what solves it
    assert 0 < float(found[1]) < 0.1  # by its own size it would be half a million
    assert found[2] == 0


def test_wrong_scales_and_shifts_are_found_again(monkeypatch):
    """One BatchNorm and nothing bent behind it: the logits are linear in what is solved."""
    monkeypatch.setattr(logits, "STEP", 1.0)
    monkeypatch.setattr(logits, "RIDGE", 1e-6)
    kind = lambda: nn.Sequential(  # noqa: E731
        nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(64, 3)
    )
    dense = net(kind)
    model = copy.deepcopy(dense)
    with torch.no_grad():
        model[1].weight.mul_(torch.tensor([0.5, 2.0, 1.0, 0.8]))
        model[1].bias.add_(torch.tensor([0.3, 0.0, -1.0, 0.1]))
    x, new = images(200), images(50, seed=2)
    before = (centred(model, new) - centred(dense, new)).abs().max()
    with torch.no_grad():
        assert approach_(model, [x], [dense(x)]) is None
    assert (centred(model, new) - centred(dense, new)).abs().max() < 1e-3 * before


def pruned(model):
    """Half of the kernels of ``conv`` gone, and all of its last filter."""
    structure = find_structure(model, images(4))
    keep = np.tile([[True, False]], (4, 2))
    keep[3] = False
    found = copy.deepcopy(model)
    masking.apply_(found, {"conv": keep}, structure=structure)
    return found, structure


class Plain(Net):
    def __init__(self):
        super().__init__()
        self.own = nn.BatchNorm2d(4)

    def forward(self, x):
        x = self.act(self.bn(self.stem(x)))
        return self.fc(self.flat(self.act(self.own(self.conv(x))).mean((2, 3))))


def test_repair_ends_with_it_and_silent_channels_stay_silent():
    dense = net(Plain)
    model, structure = pruned(dense)
    assert masking.silenced_of(model)["own.bias"].tolist() == [True, True, True, False]
    hidden = masking.original_of(model.own, "bias")[3].item()
    report = repair_(model, [images(60)], structure=structure, dense=dense)
    last = report.steps[-1]
    assert (last.name, last.kept) == ("logits", True)
    assert last.after < last.before
    assert masking.original_of(model.own, "bias")[3].item() == hidden
    assert model.own.bias[3] == model.own.weight[3] == 0


def test_without_least_squares_or_when_not_wanted_there_is_no_such_step():
    dense = net(Plain)
    for options in ({"least_squares": False}, {"logits": False}):
        model, structure = pruned(dense)
        report = repair_(model, [images(60)], structure=structure, dense=dense, **options)
        assert "logits" not in {step.name for step in report.steps}
        assert report.notes == ()


def test_where_it_cannot_be_taken_the_report_says_why(monkeypatch):
    assert "no BatchNorm" in str(why_not(nn.Sequential(nn.Linear(2, 2)), 2))
    assert why_not(Net(), 10) is None
    assert "1000 classes, more than 50" in str(why_not(Net(), 1000))
    monkeypatch.setattr(logits, "WIDEST", 15)
    assert "16 scales and shifts" in str(why_not(Net(), 10))
    dense = net(Plain)
    model, structure = pruned(dense)
    report = repair_(model, [images(60)], structure=structure, dense=dense)
    assert [step.name for step in report.steps] == ["least squares", "batchnorm"]
    assert any("No step for the logits: 24 scales" in note for note in report.notes)


class Patches(Net):
    """BatchNorm sees four quarters of every image as rows of their own."""

    def forward(self, x):
        parts = torch.cat([*x.chunk(2, dim=2)], dim=0)
        y = self.act(self.bn(self.stem(parts))).mean((2, 3))
        return self.fc(self.flat(y.reshape(2, len(x), 4).mean(0)))


class Unused(Net):
    """Its BatchNorm is there and never called."""

    def forward(self, x):
        return self.fc(self.act(self.stem(x)).mean((2, 3)))


@pytest.mark.parametrize("kind", [Patches, Unused])
def test_rows_that_are_no_images_are_left_alone(kind):
    model = net(kind)
    before = copy.deepcopy(model.state_dict())
    with torch.no_grad():
        reason = approach_(model, [images()], [model(images()) + 1])
    assert "one row per image" in str(reason)
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())


def test_no_more_batches_are_looked_at_than_needed(monkeypatch):
    monkeypatch.setattr(logits, "ROWS", 60)
    model, seen = net(), []
    batches = [images(10, seed=seed) for seed in range(4)]
    with torch.no_grad():
        target = [model(batch) for batch in batches]
    approach_(model, batches, target, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(1, 4), (2, 4)]  # ten images of three classes are thirty rows


def test_an_interrupt_leaves_the_model_as_it_was(monkeypatch):
    dense = net(Plain)
    model, structure = pruned(dense)
    before = {key: value.clone() for key, value in model.state_dict().items()}

    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(logits, "change_", stop)
    with pytest.raises(KeyboardInterrupt):
        repair_(model, [images(60)], structure=structure, dense=dense)
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())
    assert not any(module._forward_hooks for module in model.modules())


def test_frozen_parameters_and_gradients_stay_as_they_were():
    model = net()
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    with torch.no_grad():
        target = [net(seed=5)(images())]
    assert approach_(model, [images()], target) is None
    assert all(p.grad is None and not p.requires_grad for p in model.parameters())

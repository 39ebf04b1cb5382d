"""Measured statistics are those of the images, and an error changes nothing."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from snacs.errors import InputError, ModelError
from snacs.network.batchnorm import reestimate_


def net():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.BatchNorm2d(3, momentum=0.3),
        nn.ReLU(),
        nn.Dropout(0.5),
        nn.BatchNorm2d(3, momentum=None),
    )


def images(count=6, seed=1):
    return torch.randn(count, 3, 4, 4, generator=torch.Generator().manual_seed(seed)) * 2 + 1


def test_one_batch_gives_its_own_statistics_whatever_was_there():
    model, x = net(), images()
    model[0].running_mean.fill_(float("nan"))
    assert reestimate_(model, [x]) == ["0", "3"]
    flat = x.transpose(0, 1).flatten(1)
    # float32 means over 96 values
    assert torch.allclose(model[0].running_mean, flat.mean(1), atol=1e-6)
    assert torch.allclose(model[0].running_var, flat.var(1), atol=1e-5)


def test_batches_weigh_by_their_size():
    model, x = net(), images(6)
    reestimate_(model, [x[:4], x[4:]])
    assert torch.allclose(model[0].running_mean, x.mean((0, 2, 3)), atol=1e-6)


def test_modes_momenta_and_labelled_batches():
    model = net().train()
    model[0].eval()
    before = [m.training for m in model.modules()]
    reestimate_(model, [(images(), torch.zeros(6, dtype=torch.long))])
    assert [m.training for m in model.modules()] == before
    assert model[0].momentum == 0.3
    assert model[3].momentum is None


def test_no_norms_means_nothing_to_do():
    assert reestimate_(nn.Sequential(nn.Linear(2, 2)), []) == []


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        ([], InputError),
        ([images(), torch.zeros(2, 5, 4, 4)], ModelError),
        ([images() * float("nan")], ModelError),
    ],
)
def test_errors_leave_the_model_as_it_was(bad, error):
    model = net()
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(error):
        reestimate_(model, bad)
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())
    assert model.training
    assert model[0].momentum == 0.3

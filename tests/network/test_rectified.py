"""Which layers only a ReLU reads, as the tracer sees it: function or module, in place or not."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional

from snacs.network.layers import find_structure


class Net(nn.Module):
    """conv1 → norm → `reads`; conv2 keeps the network prunable."""

    def __init__(self, reads):
        super().__init__()
        self.conv0, self.conv1 = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1)
        self.norm, self.conv2 = nn.BatchNorm2d(4), nn.Conv2d(4, 4, 3, padding=1)
        self.act, self.inplace = nn.ReLU(), nn.ReLU(inplace=True)
        self.fc, self.reads = nn.Linear(4, 2), reads

    def forward(self, x):
        x = self.conv0(x).relu()
        y = self.reads(self, x)
        return self.fc(self.conv2(y).mean((2, 3)))


def rectified(reads):
    model = Net(reads).eval()
    return find_structure(model, torch.randn(2, 3, 8, 8))


@pytest.mark.parametrize(
    "reads",
    [
        lambda net, x: functional.relu(net.norm(net.conv1(x))),
        lambda net, x: net.act(net.norm(net.conv1(x))),
        lambda net, x: net.inplace(net.norm(net.conv1(x))),
        lambda net, x: net.norm(net.conv1(x)).relu_(),
        lambda net, x: net.act(net.conv1(x)),
    ],
    ids=["function", "module", "in place", "method", "without norm"],
)
def test_only_a_relu(reads):
    assert "conv1" in rectified(reads).rectified


@pytest.mark.parametrize(
    "reads",
    [
        lambda net, x: net.norm(net.conv1(x)),
        lambda net, x: functional.gelu(net.norm(net.conv1(x))),
        lambda net, x: (lambda z: z.relu() + z)(net.norm(net.conv1(x))),
        lambda net, x: (lambda z: net.norm(z).relu() + z)(net.conv1(x)),
        lambda net, x: (lambda z: z.relu() + z.relu())(net.norm(net.conv1(x))),
    ],
    ids=["nothing", "gelu", "value too", "before the norm too", "twice"],
)
def test_more_than_a_relu(reads):
    assert "conv1" not in rectified(reads).rectified


@pytest.mark.parametrize(
    ("reads", "expected"),
    [
        (lambda net, x: (net.norm(net.conv1(x)) + x).relu(), True),
        (lambda net, x: net.inplace(net.norm(net.conv1(x)).add_(x)), True),
        (lambda net, x: net.norm(net.conv1(x)) + x, False),
        (lambda net, x: (lambda z: z.relu() + z)(net.norm(net.conv1(x)) + x), False),
    ],
    ids=["relu", "in place", "none", "value too"],
)
def test_sums(reads, expected):
    found = [s for s in rectified(reads).sums if s.layer == "conv1"]
    assert [s.rectified for s in found][:1] == [expected]
    assert "conv1" not in rectified(reads).rectified

"""Networks to save: every way of writing a forward that the format has words for, and some not."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(width)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.bn(self.conv(x)) + x, inplace=True)


class Everything(nn.Module):
    """Residuals, concats, gates, slices, shapes, keyword arguments, parameters and constants."""

    image = (3, 8, 8)

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, padding="same"), nn.GELU(), nn.MaxPool2d(2))
        self.blocks = nn.ModuleList([Block(8), Block(8)])
        self.gate = nn.Conv2d(8, 8, 1)
        self.scale = nn.Parameter(torch.rand(8, 1, 1) + 0.5)
        self.register_buffer("shift", torch.rand(1, 8, 1, 1), persistent=False)
        self.table = torch.arange(16.0).reshape(1, 1, 4, 4)
        self.drop = nn.Dropout(0.5)
        self.fc = nn.Linear(12, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        x = x * torch.sigmoid(self.gate(F.adaptive_avg_pool2d(x, 1))) * self.scale + self.shift
        a, b = x.chunk(2, dim=1)
        x = torch.cat([a + 0.01 * self.table, b[:, :, ::1], a[:, 1:3].repeat(1, 2, 1, 1)], dim=1)
        x = x.view(x.size(0), x.shape[1], -1).mean(dim=-1)
        return self.fc(self.drop(F.layer_norm(x, (12,)))).clamp(min=-float("inf"), max=50.0)


class Branching(nn.Module):
    """Looks at its data: no graph can hold that."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.fc = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.norm(self.conv(x)))
        if float(x.sum()) > 1e9:
            x = x / 2
        return self.fc(x.mean((2, 3)))


def images(*shape: int, count: int = 4) -> Tensor:
    return torch.randn(count, *shape, generator=torch.Generator().manual_seed(0))


def outputs(model: nn.Module, *inputs: Tensor) -> Tensor:
    was = model.training
    model.eval()
    with torch.no_grad():
        found = model(*inputs)
    model.train(was)
    return found

"""ResNet56 for 32×32 images, with shortcuts that have no weights (option A of He et al.)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class PadShortcut(nn.Module):
    """Every second pixel, and zero channels on both sides until there are ``c_out``."""

    def __init__(self, c_in: int, c_out: int) -> None:
        super().__init__()
        self.before = (c_out - c_in) // 2
        self.after = c_out - c_in - self.before

    def forward(self, x: Tensor) -> Tensor:
        return F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, self.before, self.after))


class CifarBlock(nn.Module):
    """Two 3×3 convolutions beside an identity or padded shortcut."""

    def __init__(self, c_in: int, c_out: int, *, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(c_in, c_out, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(c_out)
        self.conv2 = nn.Conv2d(c_out, c_out, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(c_out)
        self.shortcut = nn.Identity() if stride == 1 else PadShortcut(c_in, c_out)

    def forward(self, x: Tensor) -> Tensor:
        inner = torch.relu(self.bn1(self.conv1(x)))
        return torch.relu(self.bn2(self.conv2(inner)) + self.shortcut(x))


class ResNet56(nn.Module):
    """6n+2 layers with n = 9: 853,018 parameters, widths 16, 32 and 64."""

    def __init__(self, *, channels: int = 3, classes: int = 10) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, 16, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        self.layer1 = _stage(16, 16, stride=1)
        self.layer2 = _stage(16, 32, stride=2)
        self.layer3 = _stage(32, 64, stride=2)
        self.linear = nn.Linear(64, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d | nn.Linear):
                nn.init.kaiming_normal_(module.weight)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.bn1(self.conv1(x)))
        x = self.layer3(self.layer2(self.layer1(x)))
        logits: Tensor = self.linear(x.mean(dim=(2, 3)))
        return logits


def _stage(c_in: int, c_out: int, *, stride: int) -> nn.Sequential:
    first = CifarBlock(c_in, c_out, stride=stride)
    return nn.Sequential(first, *(CifarBlock(c_out, c_out, stride=1) for _ in range(8)))

"""ResNet50 for ImageNet, with torchvision's key names and the strides of the first paper."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Bottleneck(nn.Module):
    """1×1, 3×3 and 1×1 convolution beside an identity or projected shortcut.

    v1: the stride sits on the first 1×1 convolution. torchvision's ResNet50 has it on the 3×3
    ("v1.5"); the keys are the same, but weights trained for one do not fit the other.
    """

    def __init__(self, c_in: int, width: int, *, stride: int) -> None:
        super().__init__()
        c_out = 4 * width
        self.conv1 = nn.Conv2d(c_in, width, 1, stride=stride, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, c_out, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(c_out)
        self.downsample: nn.Module = nn.Identity()
        if stride != 1 or c_in != c_out:
            self.downsample = nn.Sequential(
                nn.Conv2d(c_in, c_out, 1, stride=stride, bias=False), nn.BatchNorm2d(c_out)
            )

    def forward(self, x: Tensor) -> Tensor:
        inner = torch.relu(self.bn1(self.conv1(x)))
        inner = torch.relu(self.bn2(self.conv2(inner)))
        return torch.relu(self.bn3(self.conv3(inner)) + self.downsample(x))


class ResNet50(nn.Module):
    """Stages of 3, 4, 6 and 3 bottlenecks: 25,502,912 Conv + Linear weights."""

    def __init__(self, *, channels: int = 3, classes: int = 1000) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, 64, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        self.layer1 = _stage(64, 64, blocks=3, stride=1)
        self.layer2 = _stage(256, 128, blocks=4, stride=2)
        self.layer3 = _stage(512, 256, blocks=6, stride=2)
        self.layer4 = _stage(1024, 512, blocks=3, stride=2)
        self.fc = nn.Linear(2048, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        x = self.maxpool(torch.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        logits: Tensor = self.fc(x.mean(dim=(2, 3)))
        return logits


def _stage(c_in: int, width: int, *, blocks: int, stride: int) -> nn.Sequential:
    first = Bottleneck(c_in, width, stride=stride)
    rest = (Bottleneck(4 * width, width, stride=1) for _ in range(blocks - 1))
    return nn.Sequential(first, *rest)

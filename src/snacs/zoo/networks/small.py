"""Two small networks for 8×8 digits and other small images, trained in seconds on a CPU."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class SmallConvNet(nn.Module):
    """Three 3×3 convolutions with BatchNorm, two max-pools, global average, one Linear.

    23,824 Conv + Linear weights at the default width.
    """

    def __init__(self, *, channels: int = 1, classes: int = 10, width: int = 16) -> None:
        super().__init__()
        self.features = nn.Sequential(
            *_conv_bn_relu(channels, width),
            nn.MaxPool2d(2),
            *_conv_bn_relu(width, 2 * width),
            nn.MaxPool2d(2),
            *_conv_bn_relu(2 * width, 4 * width),
        )
        self.classifier = nn.Linear(4 * width, classes)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.classifier(self.features(x).mean(dim=(2, 3)))
        return logits


class SmallBlock(nn.Module):
    """Two 3×3 convolutions and a shortcut: the identity, or a strided 1×1 convolution."""

    def __init__(self, c_in: int, c_out: int, *, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(c_in, c_out, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(c_out)
        self.conv2 = nn.Conv2d(c_out, c_out, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(c_out)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or c_in != c_out:
            self.shortcut = nn.Sequential(
                nn.Conv2d(c_in, c_out, 1, stride=stride, bias=False), nn.BatchNorm2d(c_out)
            )

    def forward(self, x: Tensor) -> Tensor:
        inner = torch.relu(self.bn1(self.conv1(x)))
        return torch.relu(self.bn2(self.conv2(inner)) + self.shortcut(x))


class SmallResNet(nn.Module):
    """A stem and three stages of residual blocks, strides 1, 2, 2; the network of the demo.

    173,840 Conv + Linear weights at the defaults: two blocks per stage, widths 16, 32 and 64.
    """

    def __init__(
        self, *, channels: int = 1, classes: int = 10, width: int = 16, blocks: int = 2
    ) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, width, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.layer1 = _stage(width, width, blocks=blocks, stride=1)
        self.layer2 = _stage(width, 2 * width, blocks=blocks, stride=2)
        self.layer3 = _stage(2 * width, 4 * width, blocks=blocks, stride=2)
        self.fc = nn.Linear(4 * width, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.bn1(self.conv1(x)))
        x = self.layer3(self.layer2(self.layer1(x)))
        logits: Tensor = self.fc(x.mean(dim=(2, 3)))
        return logits


def _conv_bn_relu(c_in: int, c_out: int) -> tuple[nn.Module, ...]:
    return (
        nn.Conv2d(c_in, c_out, 3, padding=1, bias=False),
        nn.BatchNorm2d(c_out),
        nn.ReLU(),
    )


def _stage(c_in: int, c_out: int, *, blocks: int, stride: int) -> nn.Sequential:
    first = SmallBlock(c_in, c_out, stride=stride)
    return nn.Sequential(first, *(SmallBlock(c_out, c_out, stride=1) for _ in range(blocks - 1)))

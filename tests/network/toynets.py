"""Small networks of every kind, some with their own answer key (``macs``, ``weights``)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from snacs.values import Segment


def conv(c_in: int, c_out: int, size: int = 3, **options: Any) -> nn.Conv2d:
    return nn.Conv2d(c_in, c_out, size, **{"padding": size // 2, **options})


class Net(nn.Module):
    """A network out of named modules and a forward function of (modules, *inputs)."""

    def __init__(
        self, function: Callable[..., Any], /, **modules: nn.Module | nn.Parameter
    ) -> None:
        super().__init__()
        self.function = function
        for name, module in modules.items():
            setattr(self, name, module)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(self, *args, **kwargs)


class Plain(nn.Module):
    """8×8 images: conv, conv, pool, flatten, linear. MACs counted by hand."""

    macs = 4 * 3 * 9 * 64 + 6 * 4 * 9 * 64 + 10 * 6 * 16
    weights = 4 * 3 * 9 + 6 * 4 * 9 + 10 * 6 * 16
    image = (3, 8, 8)

    def __init__(self) -> None:
        super().__init__()
        self.first = conv(3, 4)
        self.second = conv(4, 6)
        self.head = nn.Linear(6 * 16, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.relu(self.first(x))
        x = functional.max_pool2d(functional.relu(self.second(x)), 2)
        return self.head(torch.flatten(x, 1))


class PadBlock(nn.Module):
    """A residual block whose shortcut subsamples and pads channels with zeros (option A)."""

    def __init__(self, c_in: int, c_out: int, stride: int) -> None:
        super().__init__()
        self.conv1 = conv(c_in, c_out, stride=stride, bias=False)
        self.bn1 = nn.BatchNorm2d(c_out)
        self.conv2 = conv(c_out, c_out, bias=False)
        self.bn2 = nn.BatchNorm2d(c_out)
        self.stride, self.side = stride, (c_out - c_in) // 2

    def forward(self, x: Tensor) -> Tensor:
        out = self.bn2(self.conv2(functional.relu(self.bn1(self.conv1(x)))))
        if self.stride > 1:
            x = functional.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, self.side, self.side))
        out += x
        return functional.relu(out)


class Residual(nn.Module):
    """8×8 images through an identity block and an option-A block of twice the width."""

    macs = 4 * 3 * 9 * 64 + 2 * 4 * 4 * 9 * 64 + (8 * 4 + 8 * 8) * 9 * 16 + 10 * 8
    weights = 4 * 3 * 9 + 2 * 4 * 4 * 9 + (8 * 4 + 8 * 8) * 9 + 10 * 8
    image = (3, 8, 8)

    def __init__(self) -> None:
        super().__init__()
        self.stem = conv(3, 4, bias=False)
        self.bn = nn.BatchNorm2d(4)
        self.a = PadBlock(4, 4, 1)
        self.b = PadBlock(4, 8, 2)
        self.fc = nn.Linear(8, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.relu(self.bn(self.stem(x)))
        return self.fc(self.b(self.a(x)).mean((2, 3)))


class Grouped(nn.Module):
    """4×4 images: pointwise, depthwise, grouped, strided; no padding on the last."""

    macs = 4 * 3 * 16 + 4 * 9 * 16 + 8 * 2 * 9 * 16 + 2 * 8 * 4 * 4 + 5 * 2
    weights = 4 * 3 + 4 * 9 + 8 * 2 * 9 + 2 * 8 * 4 + 5 * 2
    image = (3, 4, 4)

    def __init__(self) -> None:
        super().__init__()
        self.point = conv(3, 4, 1)
        self.depth = conv(4, 4, groups=4)
        self.group = conv(4, 8, groups=2)
        self.stride = conv(8, 2, 2, stride=2, padding=0)
        self.fc = nn.Linear(2, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stride(functional.relu(self.group(self.depth(self.point(x)))))
        return self.fc(functional.adaptive_avg_pool2d(x, 1).flatten(1))


def segment(source: str, first: int, start: int, length: int) -> Segment:
    return Segment(source, first, start, length)


def images(*shape: int, count: int = 6, seed: int = 0) -> Tensor:
    return torch.randn(count, *shape, generator=torch.Generator().manual_seed(seed))


def hooks_on(model: nn.Module) -> int:
    """Hooks on all modules together."""
    return sum(
        len(module._forward_hooks) + len(module._forward_pre_hooks) for module in model.modules()
    )


def randomise_norms(model: nn.Module, seed: int = 0) -> nn.Module:
    """Give BatchNorms statistics that a trained network would have."""
    stream = torch.Generator().manual_seed(seed)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d):
            for tensor, low in ((module.running_mean, -0.5), (module.running_var, 0.5)):
                tensor.copy_(torch.rand(tensor.shape, generator=stream) + low)
            with torch.no_grad():
                module.weight.copy_(torch.rand(module.weight.shape, generator=stream) + 0.5)
                module.bias.copy_(torch.rand(module.bias.shape, generator=stream) - 0.5)
    return model

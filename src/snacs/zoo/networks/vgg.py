"""VGG16 for 32×32 images: 13 convolutions with BatchNorm, global average, one Linear."""

from __future__ import annotations

from torch import Tensor, nn

# Filters of each convolution; "pool" halves the resolution.
_LAYOUT: tuple[int | str, ...] = (
    *(64, 64, "pool"),
    *(128, 128, "pool"),
    *(256, 256, 256, "pool"),
    *(512, 512, 512, "pool"),
    *(512, 512, 512, "pool"),
)


class VGG16(nn.Module):
    """VGG16 with BatchNorm as used on CIFAR-10: 14,715,584 Conv + Linear weights."""

    def __init__(self, *, channels: int = 3, classes: int = 10) -> None:
        super().__init__()
        modules: list[nn.Module] = []
        c_in = channels
        for step in _LAYOUT:
            if isinstance(step, int):
                # BatchNorm follows and has its own shift, so a bias would do nothing.
                modules += [nn.Conv2d(c_in, step, 3, padding=1, bias=False), nn.BatchNorm2d(step)]
                modules += [nn.ReLU()]
                c_in = step
            else:
                modules.append(nn.MaxPool2d(2))
        self.features = nn.Sequential(*modules)
        self.classifier = nn.Linear(c_in, classes)
        for module in self.features:
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.classifier(self.features(x).mean(dim=(2, 3)))
        return logits

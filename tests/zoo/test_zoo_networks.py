"""The zoo's networks against weights counted by hand from their papers' tables."""

import pytest
import torch
from torch import Tensor, nn

from snacs.zoo.entry import seeded
from snacs.zoo.networks import NETWORKS, ResNet56
from snacs.zoo.networks.resnet50 import Bottleneck
from snacs.zoo.networks.resnet_cifar import PadShortcut
from snacs.zoo.networks.small import SmallConvNet, SmallResNet


def conv(c_in: int, c_out: int, kernel: int = 3) -> int:
    return c_in * c_out * kernel * kernel


def bottleneck(c_in: int, width: int) -> int:
    return conv(c_in, width, 1) + conv(width, width) + conv(width, 4 * width, 1)


WEIGHTS = {
    "small-conv": conv(1, 16) + conv(16, 32) + conv(32, 64) + 64 * 10,
    "small-resnet": conv(1, 16)
    + 4 * conv(16, 16)
    + (conv(16, 32) + conv(16, 32, 1) + 3 * conv(32, 32))
    + (conv(32, 64) + conv(32, 64, 1) + 3 * conv(64, 64))
    + 64 * 10,
    "vgg16": conv(3, 64)
    + conv(64, 64)
    + conv(64, 128)
    + conv(128, 128)
    + conv(128, 256)
    + 2 * conv(256, 256)
    + conv(256, 512)
    + 5 * conv(512, 512)
    + 512 * 10,
    "resnet56": conv(3, 16)
    + 18 * conv(16, 16)
    + (conv(16, 32) + 17 * conv(32, 32))
    + (conv(32, 64) + 17 * conv(64, 64))
    + 64 * 10,
    "resnet50": conv(3, 64, 7)
    + (bottleneck(64, 64) + conv(64, 256, 1) + 2 * bottleneck(256, 64))
    + (bottleneck(256, 128) + conv(256, 512, 1) + 3 * bottleneck(512, 128))
    + (bottleneck(512, 256) + conv(512, 1024, 1) + 5 * bottleneck(1024, 256))
    + (bottleneck(1024, 512) + conv(1024, 2048, 1) + 2 * bottleneck(2048, 512))
    + 2048 * 1000,
}


@pytest.mark.parametrize("name", sorted(NETWORKS))
def test_weights_classes_and_input_are_as_the_entry_says(name: str) -> None:
    entry = NETWORKS[name]
    model = entry.build().eval()
    layers = [m for m in model.modules() if isinstance(m, nn.Conv2d | nn.Linear)]
    with torch.no_grad():
        logits = model(torch.zeros(2, *entry.shape))
    assert sum(layer.weight.numel() for layer in layers) == WEIGHTS[name]
    assert logits.shape == (2, entry.classes)
    assert len(entry.normalisation.mean) == entry.shape[0] == len(entry.training.mean)
    assert entry.notes
    assert type(model).__doc__


def test_the_weights_named_in_docstrings_are_counted() -> None:
    for name in ("small-conv", "small-resnet", "vgg16", "resnet50"):
        assert f"{WEIGHTS[name]:,}" in (type(NETWORKS[name].build()).__doc__ or "")


def test_resnet56_has_as_many_parameters_as_its_authors_report() -> None:
    assert sum(p.numel() for p in ResNet56().parameters()) == 853_018


def test_pad_shortcut_puts_channels_in_the_middle_and_takes_every_second_pixel() -> None:
    x = torch.arange(2 * 16, dtype=torch.float32).reshape(1, 2, 4, 4)
    y = PadShortcut(2, 4)(x)
    assert y.shape == (1, 4, 2, 2)
    assert torch.equal(y[:, 1:3], x[:, :, ::2, ::2])
    assert not y[:, [0, 3]].any()


def test_resnet50_strides_on_the_first_convolution() -> None:
    blocks = [m for m in NETWORKS["resnet50"].build().modules() if isinstance(m, Bottleneck)]
    strided = [block for block in blocks if block.conv1.stride == (2, 2)]
    assert len(blocks) == 16
    assert len(strided) == 3
    assert all(block.conv2.stride == (1, 1) for block in blocks)


@pytest.mark.parametrize("network", [SmallConvNet, SmallResNet])
def test_small_networks_take_other_images_and_classes(network: type[nn.Module]) -> None:
    output: Tensor = network(channels=3, classes=7, width=8)(torch.zeros(2, 3, 28, 28))
    assert output.shape == (2, 7)


def test_seeded_networks_repeat_and_leave_the_global_generator_alone() -> None:
    before = torch.random.get_rng_state()
    build = NETWORKS["small-resnet"].build
    one, same, other = seeded(build, 1), seeded(build, 1), seeded(build, 2)
    weight = one.state_dict()["conv1.weight"]
    assert torch.equal(weight, same.state_dict()["conv1.weight"])
    assert not torch.equal(weight, other.state_dict()["conv1.weight"])
    assert torch.equal(before, torch.random.get_rng_state())

"""The networks of the paper, compacted: the size that was counted, the outputs that were there."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from test_compact import assert_counted
from toynets import images, randomise_norms

from snacs.zoo.networks import NETWORKS
from snacs.zoo.weights import load_weights_

WEIGHTS = {
    "vgg16": "vgg16-cifar10-fp16",
    "resnet56": "resnet56-cifar10",
    "resnet50": "resnet50-imagenet-v1-fp16",
}


def test_resnet56_keeps_its_class_and_shifts_its_padding() -> None:
    torch.manual_seed(0)
    # Its pool is global, so that a quarter of the side costs a sixteenth of the time.
    report = assert_counted(randomise_norms(NETWORKS["resnet56"].build()), images(3, 8, 8), 0.3)
    assert report.rewritten == ("layer2.0.shortcut", "layer3.0.shortcut")


@pytest.mark.slow
@pytest.mark.shared
@pytest.mark.parametrize("name", WEIGHTS)
def test_real_networks_shrink_by_the_counted_amount(name: str, shared: Path) -> None:
    entry = NETWORKS[name]
    model = entry.build()
    load_weights_(model, shared / "weights" / f"{WEIGHTS[name]}.safetensors")
    report = assert_counted(model.eval(), images(*entry.shape, count=2), 0.3)
    assert report.removed_weights > 0.35 * report.weights
    assert report.left == ()

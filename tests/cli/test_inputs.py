"""Which test images are for choosing and which for reporting; data that is found by itself."""

from __future__ import annotations

import pytest
import torch

from snacs.cli.inputs import Inputs, default_data
from snacs.errors import InputError
from snacs.zoo.data.images import Images, InMemory
from snacs.zoo.networks import NETWORKS, SmallConvNet


def _inputs(data: str) -> Inputs:
    images = Images(
        InMemory(torch.zeros(10, 1, 8, 8, dtype=torch.uint8)), torch.arange(10), {9: "nine"}
    )
    return Inputs(SmallConvNet(), None, None, images, images, images, None, data)


def _labels(batches) -> list[int]:
    return torch.cat([y for _, y in batches]).tolist()


def test_cifar10_is_cut_in_the_middle_and_other_data_image_by_image():
    cifar, other = _inputs("cifar10:folder"), _inputs("folder")
    assert _labels(cifar.test_half("dev")) == [0, 1, 2, 3, 4]
    assert _labels(cifar.test_half("report")) == [5, 6, 7, 8, 9]
    assert _labels(other.test_half("dev")) == [0, 2, 4, 6, 8]
    assert _labels(other.test_half("report")) == [1, 3, 5, 7, 9]
    for inputs in (cifar, other):
        assert _labels(inputs.test_half("all")) == list(range(10))
        assert len(_labels(inputs.test_half("report", 2))) == 2


def test_training_images_can_be_few_and_stay_balanced():
    found = _labels(_inputs("folder").some_train_batches(4, seed=0, count=8))
    assert len(found) == 8
    assert len(set(found)) == 8
    assert len(_labels(_inputs("folder").some_train_batches(4, seed=0, count=None))) == 8  # whole


def test_data_of_the_zoo_is_known_and_imagenette_looked_for(tmp_path, monkeypatch):
    monkeypatch.setenv("SNACS_DATA", str(tmp_path))
    assert default_data("resnet56", NETWORKS["resnet56"]) == "cifar10"
    with pytest.raises(InputError, match="imagenette"):
        default_data("resnet50", NETWORKS["resnet50"])
    (tmp_path / "imagenette").mkdir()
    assert default_data("resnet50", NETWORKS["resnet50"]) == str(tmp_path / "imagenette")
    with pytest.raises(InputError, match="--data"):
        default_data("my.net:build", None)

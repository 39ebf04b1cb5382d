"""Which test images are for choosing and which for reporting; data that is found by itself."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from snacs.cli.commands import _training
from snacs.cli.comparing import recipe_of
from snacs.cli.inputs import Inputs, default_data, open_inputs
from snacs.cli.parser import build_parser
from snacs.config import SCORES
from snacs.errors import InputError
from snacs.training import RECIPES, scaled
from snacs.zoo.data.images import Images, InMemory
from snacs.zoo.networks import NETWORKS, SmallConvNet
from snacs.zoo.weights import save_weights


def _inputs(data: str) -> Inputs:
    images = Images(
        InMemory(torch.zeros(10, 1, 8, 8, dtype=torch.uint8)), torch.arange(10), {9: "nine"}
    )
    return Inputs(SmallConvNet(), None, images, images, images, None, data)


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
    found = _labels(_inputs("folder").train_batches(4, seed=0, count=8))
    assert len(found) == 8
    assert len(set(found)) == 8
    assert len(_labels(_inputs("folder").train_batches(4, seed=0, count=None))) == 8  # whole


def test_data_of_the_zoo_is_known_and_imagenette_looked_for(tmp_path, monkeypatch):
    monkeypatch.setenv("SNACS_DATA", str(tmp_path))
    assert default_data("resnet56", NETWORKS["resnet56"]) == "cifar10"
    with pytest.raises(InputError, match="imagenette"):
        default_data("resnet50", NETWORKS["resnet50"])
    (tmp_path / "imagenette").mkdir()
    assert default_data("resnet50", NETWORKS["resnet50"]) == str(tmp_path / "imagenette")
    with pytest.raises(InputError, match="--data"):
        default_data("my.net:build", None)


def test_floats_are_not_normalised_so_mean_and_std_are_refused(tmp_path):
    save_weights(SmallConvNet(), tmp_path / "small.safetensors")
    images = np.zeros((100, 1, 8, 8), np.float32)
    np.savez(tmp_path / "floats.npz", x=images, y=np.arange(100) % 10)
    np.savez(tmp_path / "pixels.npz", x=images.astype(np.uint8), y=np.arange(100) % 10)

    def opened(name: str, *more: str) -> Inputs:
        command = ["plan", "small-conv", "--weights", str(tmp_path / "small.safetensors")]
        command += ["--data", str(tmp_path / name), "--target", "0.5", *more]
        return open_inputs(build_parser().parse_args(command))

    typed = ("--mean", "0.5", "--std", "0.25")
    opened("floats.npz")
    assert opened("pixels.npz", *typed).normalisation.mean == (0.5,)
    with pytest.raises(InputError, match="floats, which are used as they are"):
        opened("floats.npz", *typed)


def test_help_names_every_recipe_and_score():
    parser = build_parser()
    commands = next(iter(parser._subparsers._group_actions)).choices
    words = " ".join(commands["prune"].format_help().split())
    for name in RECIPES:
        known = name.replace("vgg16", "NET").replace("resnet56", "NET").replace("resnet50", "NET")
        assert known in words, name
    words = " ".join(commands["compare"].format_help().split())
    for name in (*SCORES, "torch-pruning"):
        assert name in words, name


def test_a_recipe_is_squeezed_to_the_epochs():
    arguments = build_parser().parse_args(["prune", "small-conv", "--retrain", "3"])
    arguments.recipe = "retrain-vgg16"
    inputs = _inputs("folder")
    _, recipe = _training(arguments, inputs)
    assert recipe.epochs == 3
    assert recipe.milestones == pytest.approx((0.9, 1.8, 2.6))
    arguments.recipe, arguments.retrain = "scratch", 1
    assert _training(arguments, inputs)[1].warmup < 1


@pytest.mark.parametrize(("epochs", "name"), [(1, "brief"), (2, "brief"), (3, "short")])
def test_the_recipe_of_a_comparison_depends_on_the_epochs(epochs, name):
    words = ["compare", "small-conv", "--quiet", "--epochs", str(epochs)]
    assert recipe_of(build_parser().parse_args(words)) == scaled(RECIPES[name], epochs)
    asked = build_parser().parse_args([*words, "--recipe", "brief"])
    assert recipe_of(asked) == scaled(RECIPES["brief"], epochs)

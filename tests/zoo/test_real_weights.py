"""The real networks on the real images: what FACTS.md states, through our own loader."""

from pathlib import Path

import pytest
import torch

from snacs.zoo.data import Images, open_data
from snacs.zoo.loading import network
from snacs.zoo.weights import load_weights_, normalisation_of

pytestmark = pytest.mark.shared

FILES = {
    "vgg16": "vgg16-cifar10-fp16.safetensors",
    "resnet56": "resnet56-cifar10.safetensors",
    "resnet50": "resnet50-imagenet-v1-fp16.safetensors",
}


def right(name: str, images_of: str, weights: Path, count: int | None) -> tuple[int, int, int]:
    """Images, correct among all outputs, correct among the classes that occur."""
    build, entry = network(name)
    model = build().eval()
    load_weights_(model, weights)
    images: Images = open_data(
        images_of, split="test", entry=entry, normalisation=normalisation_of(weights, entry)
    )
    images = images if count is None else images.balanced(count)
    among = torch.tensor(sorted(images.classes))
    every = few = 0
    with torch.inference_mode():
        for x, y in images.batches(50):
            logits = model(x)
            every += int((logits.argmax(1) == y).sum())
            few += int((among[logits[:, among].argmax(1)] == y).sum())
    return len(images), every, few


@pytest.mark.usefixtures("real_cifar10")
@pytest.mark.parametrize(("name", "accuracy"), [("resnet56", 0.9339), ("vgg16", 0.8573)])
def test_cifar_networks_on_some_images(shared: Path, name: str, accuracy: float) -> None:
    n, every, _ = right(name, "cifar10", shared / "weights" / FILES[name], 200)
    # Standard error of 200 images: 1.8 and 2.5 points; four of them. Wrong channels, labels or
    # normalisation cost far more.
    assert n == 200
    assert abs(every / n - accuracy) < 4 * (accuracy * (1 - accuracy) / n) ** 0.5


def test_resnet50_on_some_images(shared: Path) -> None:
    folder = str(shared / "data" / "imagenette")
    n, every, few = right("resnet50", folder, shared / "weights" / FILES["resnet50"], 30)
    # 74.8 and 96.4 % on all 250: at least four standard errors (8 and 3.4 points) above this.
    assert n == 30
    assert every / n > 0.43
    assert few / n > 0.82


@pytest.mark.slow
@pytest.mark.usefixtures("real_cifar10")
@pytest.mark.parametrize(("name", "correct"), [("resnet56", 9339), ("vgg16", 8573)])
def test_cifar_networks_on_all_images(shared: Path, name: str, correct: int) -> None:
    n, every, _ = right(name, "cifar10", shared / "weights" / FILES[name], None)
    # The stated figure; other CPUs may round a few borderline images the other way.
    assert n == 10_000
    assert abs(every - correct) <= 5


@pytest.mark.slow
def test_resnet50_on_all_images(shared: Path) -> None:
    folder = str(shared / "data" / "imagenette")
    n, every, few = right("resnet50", folder, shared / "weights" / FILES["resnet50"], None)
    # 187 and 241 measured; a borderline image may fall the other way on another CPU.
    assert n == 250
    assert abs(every - 187) <= 2
    assert few / n >= 0.95

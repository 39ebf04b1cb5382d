"""The embedded digits: split, scale, and that the demo's network learns them."""

from collections.abc import Iterator

import pytest
import torch
from torch import nn

from snacs.zoo.data.digits import digits
from snacs.zoo.entry import seeded
from snacs.zoo.networks import DIGITS, NETWORKS


def test_splits_are_disjoint_balanced_and_fixed() -> None:
    train, test, every = (
        digits(split=split, normalisation=None) for split in ("train", "test", "all")
    )
    assert train.index is not None
    assert test.index is not None
    assert (len(train), len(test), len(every)) == (1347, 450, 1797)
    assert sorted([*train.index.tolist(), *test.index.tolist()]) == list(range(1797))
    counts = torch.bincount(test.y)
    whole = torch.bincount(every.y)
    # A quarter of every class, rounded to whole images.
    assert (counts - 0.25 * whole).abs().max() <= 0.5
    again = digits(split="test", normalisation=None)
    assert again.index is not None
    assert torch.equal(test.index, again.index)


def test_images_lie_in_zero_to_one_and_normalise_to_mean_zero() -> None:
    x, _ = next(iter(digits(split="all", normalisation=None).batches(1797)))
    assert (float(x.min()), float(x.max())) == (0.0, 1.0)
    normalised, _ = next(iter(digits(split="all", normalisation=DIGITS).batches(1797)))
    # The constants are the data's own, rounded to three digits.
    assert abs(float(normalised.mean())) < 2e-3
    assert abs(float(normalised.std()) - 1) < 2e-3


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Layers this small lose by threads, badly so on a busy machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("name", ["small-resnet", "small-conv"])
def test_small_networks_learn_the_digits(name: str) -> None:
    """Four epochs, not the demo's fifteen: 95.5 to 97 %; 93 % leaves room for other CPUs."""
    train, test = (digits(split=split, normalisation=DIGITS) for split in ("train", "test"))
    model = seeded(NETWORKS[name].build, 0)
    batches = train.batches(64, shuffle=0)
    epochs = 4
    optimizer = torch.optim.SGD(model.parameters(), lr=0.03, momentum=0.9, nesterov=True)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs * len(batches))
    for epoch in range(epochs):
        for x, y in batches.at_epoch(epoch):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
            schedule.step()
    model.eval()
    with torch.no_grad():
        right = sum(int((model(x).argmax(1) == y).sum()) for x, y in test.batches(450))
    assert right / len(test) > 0.93

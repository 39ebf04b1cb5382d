"""Batches repeat, cover everything once, and follow seed and epoch."""

from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from snacs.errors import InputError
from snacs.zoo.data.images import Images, InMemory, stratified_split
from snacs.zoo.entry import Normalisation


def numbered(n: int, *, classes: int = 3) -> Images:
    """Image i is filled with the value i and has the label i modulo the classes."""
    x = torch.arange(n, dtype=torch.uint8).view(n, 1, 1, 1).expand(n, 1, 6, 6).contiguous()
    names = {label: str(label) for label in range(classes)}
    return Images(InMemory(x), torch.arange(n) % classes, names)


def seen(images: Images, size: int, **options: object) -> list[int]:
    batches = images.batches(size, **options)  # type: ignore[arg-type]
    return [round(float(v) * 255) for x, _ in batches for v in x[:, 0, 3, 3]]


@settings(deadline=None, max_examples=40)
@given(
    n=st.integers(1, 60),
    size=st.integers(1, 25),
    shuffle=st.none() | st.integers(0, 5),
    epoch=st.integers(0, 3),
)
def test_every_image_comes_once_with_its_label(
    n: int, size: int, shuffle: int | None, epoch: int
) -> None:
    batches = numbered(n).batches(size, shuffle=shuffle, epoch=epoch)
    read = list(batches)
    values = torch.cat([(x[:, 0, 0, 0] * 255).round().long() for x, _ in read])
    labels = torch.cat([y for _, y in read])
    assert len(read) == len(batches)
    assert all(len(x) == size for x, _ in read[:-1])
    assert sorted(values.tolist()) == list(range(n))
    assert torch.equal(labels, values % 3)
    assert labels.dtype == torch.int64
    if shuffle is None:
        assert values.tolist() == list(range(n))


def test_the_same_seed_and_epoch_repeat_and_others_differ() -> None:
    images = numbered(50)
    first = images.batches(8, shuffle=1, epoch=2, augment="crop-flip")
    once, again = list(first), list(first)
    assert all(torch.equal(a, b) for (a, _), (b, _) in zip(once, again, strict=True))
    assert seen(images, 8, shuffle=1) != seen(images, 8, shuffle=2)
    assert seen(images, 8, shuffle=1) != seen(images, 8, shuffle=1, epoch=1)
    moved = [x for x, _ in images.batches(8, shuffle=1).at_epoch(2)]
    plain = [x for x, _ in images.batches(8, shuffle=1, epoch=2)]
    assert all(torch.equal(a, b) for a, b in zip(moved, plain, strict=True))


def test_augmentation_changes_pixels_but_not_the_order() -> None:
    images = numbered(50)
    plain = images.batches(8, shuffle=1)
    moved = images.batches(8, shuffle=1, augment="shift")
    assert all(torch.equal(a, b) for (_, a), (_, b) in zip(plain, moved, strict=True))
    # The centre of a 6×6 image survives a shift by one pixel, its border does not.
    assert seen(images, 8, shuffle=1) == seen(images, 8, shuffle=1, augment="shift")
    assert any(not torch.equal(a, b) for (a, _), (b, _) in zip(plain, moved, strict=True))


def test_a_smaller_last_batch_can_be_dropped() -> None:
    batches = numbered(10).batches(4, drop_last=True)
    assert [len(x) for x, _ in batches] == [4, 4]
    assert len(batches) == 2


def test_bytes_are_scaled_and_normalised_and_floats_left_alone() -> None:
    images = Images(
        InMemory(torch.full((2, 1, 2, 2), 255, dtype=torch.uint8)),
        torch.zeros(2, dtype=torch.int64),
        {0: "a"},
        Normalisation((0.5,), (0.25,)),
    )
    x, _ = next(iter(images.batches(2)))
    assert torch.equal(x, torch.full((2, 1, 2, 2), 2.0))
    floats = Images(InMemory(torch.full((2, 5), 7.0)), images.y, {0: "a"}, images.normalisation)
    x, _ = next(iter(floats.batches(2)))
    assert torch.equal(x, torch.full((2, 5), 7.0))
    assert floats.shape == (5,)


def test_subsets_of_subsets_keep_pixels_and_labels_together() -> None:
    images = numbered(30).subset(slice(10, 30)).subset([5, 0, 19])
    assert seen(images, 2) == [15, 10, 29]
    assert images.y.tolist() == [0, 1, 2]
    assert len(images) == 3


def test_balanced_takes_as_equal_numbers_as_the_classes_allow() -> None:
    labels = torch.tensor([0] * 50 + [1] * 20 + [2] * 3)
    x = torch.arange(73, dtype=torch.uint8).view(-1, 1, 1, 1)
    images = Images(InMemory(x), labels, {0: "a", 1: "b", 2: "c"})
    assert Counter(images.balanced(9).y.tolist()) == {0: 3, 1: 3, 2: 3}
    assert Counter(images.balanced(21).y.tolist()) == {0: 9, 1: 9, 2: 3}
    everything = images.balanced(500, seed=1)
    assert everything.index is not None
    assert sorted(everything.index.tolist()) == list(range(73))
    again, other = images.balanced(9, seed=0), images.balanced(9, seed=1)
    assert again.y.tolist() == images.balanced(9, seed=0).y.tolist()
    assert again.index is not None
    assert other.index is not None
    assert again.index.tolist() != other.index.tolist()


@settings(deadline=None, max_examples=40)
@given(
    labels=st.lists(st.integers(0, 4), min_size=1, max_size=80),
    share=st.floats(0.05, 0.95),
    seed=st.integers(0, 3),
)
def test_a_stratified_split_takes_its_share_of_every_class(
    labels: list[int], share: float, seed: int
) -> None:
    y = torch.tensor(labels)
    kept, held = stratified_split(y, held_out=share, seed=seed)
    assert sorted([*kept.tolist(), *held.tolist()]) == list(range(len(labels)))
    for label, count in Counter(labels).items():
        # Rounded to whole images.
        assert abs(int((y[held] == label).sum()) - share * count) <= 0.5


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, "'batch_size' must be at least 1"),
        ({"batch_size": 2, "augment": "flip"}, "crop-flip, shift, resized-crop. Got 'flip'"),
        ({"batch_size": 2, "shuffle": -1}, "'shuffle' must not be negative"),
        ({"batch_size": 2, "epoch": -1}, "'epoch' must not be negative"),
        ({"batch_size": 2, "augment": "resized-crop"}, "use augment='crop-flip'"),
    ],
)
def test_wrong_options_are_named(options: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        list(numbered(4).batches(**options))  # type: ignore[arg-type]
    with pytest.raises(InputError, match="'count'"):
        numbered(4).balanced(0)

"""Folders in the ImageNet layout: parts, class numbers, sizes."""

from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from PIL import Image

from snacs.errors import InputError
from snacs.zoo.data import Images, open_data
from snacs.zoo.data.imagenet import IMAGENETTE
from snacs.zoo.data.pictures import Pictures
from snacs.zoo.networks import NETWORKS


def fill(root: Path, counts: Mapping[str, int], *, size: tuple[int, int] = (12, 12)) -> Path:
    for place, count in counts.items():
        (root / place).mkdir(parents=True)
        for i in range(count):
            Image.new("RGB", size, (i, 0, 0)).save(root / place / f"{i:03}.png")
    return root


def names(images: Images) -> list[str]:
    assert isinstance(images.pixels, Pictures)
    index = range(len(images.pixels)) if images.index is None else images.index.tolist()
    return [
        f"{p.parts[-3]}/{p.parts[-2]}/{p.name}" for p in map(images.pixels.paths.__getitem__, index)
    ]


def test_divided_folders_are_taken_as_they_are(tmp_path: Path) -> None:
    root = fill(
        tmp_path,
        {
            "train/a": 3,
            "train/b": 2,
            "val/a": 1,
            "val/b": 1,
            "calibration/a": 1,
            "calibration/b": 1,
        },
    )
    for split, part, n in (("train", "train", 5), ("test", "val", 2), ("calibration",) * 2 + (2,)):
        images = open_data(str(root), split=split)
        assert {name.split("/")[0] for name in names(images)} == {part}
        assert len(images) == n
    assert len(open_data(str(root), split="all")) == 9
    assert open_data(str(root), split="train").y.tolist() == [0, 0, 0, 1, 1]


def test_train_and_calibration_stand_in_for_each_other(tmp_path: Path) -> None:
    one = fill(tmp_path / "one", {"calibration/a": 2, "test/a": 1})
    two = fill(tmp_path / "two", {"train/a": 2, "test/a": 1})
    assert len(open_data(str(one), split="train")) == 2
    assert len(open_data(str(two), split="calibration")) == 2


def test_a_class_that_one_part_lacks_does_not_shift_the_others(tmp_path: Path) -> None:
    root = fill(tmp_path, {"train/a": 1, "train/b": 1, "train/c": 1, "test/a": 1, "test/c": 1})
    images = open_data(str(root), split="test")
    assert images.y.tolist() == [0, 2]
    assert images.classes == {0: "a", 1: "b", 2: "c"}


def test_a_fifth_is_held_out_where_nobody_divided(tmp_path: Path) -> None:
    root = fill(tmp_path, {"cat": 10, "dog": 5})
    train, test = (open_data(str(root), split=split) for split in ("train", "test"))
    assert sorted(names(train) + names(test)) == sorted(names(open_data(str(root), split="all")))
    assert test.y.tolist() == [0, 0, 1]
    assert "20% of each class held out" in test.origin
    assert names(test) == names(open_data(str(root), split="test"))


def test_a_fifth_is_held_out_of_train_where_only_test_is_missing(tmp_path: Path) -> None:
    root = fill(tmp_path, {"train/a": 10, "calibration/a": 4})
    train, calibration, test = (
        open_data(str(root), split=split) for split in ("train", "calibration", "test")
    )
    assert (len(train), len(calibration), len(test)) == (8, 4, 2)
    assert not set(names(train)) & set(names(test))


def test_wnids_have_imagenets_numbers_for_a_network_with_1000_outputs(tmp_path: Path) -> None:
    root = fill(tmp_path, {f"test/{wnid}": 1 for wnid in IMAGENETTE})
    images = open_data(str(root), split="test", outputs=1000)
    assert images.y.tolist() == [0, 217, 482, 491, 497, 566, 569, 571, 574, 701]
    assert images.classes[701] == "parachute"
    assert open_data(str(root), split="test", outputs=10).y.tolist() == list(range(10))


def test_all_thousand_wnids_are_numbered_in_order(tmp_path: Path) -> None:
    wnids = [f"n{i:08}" for i in range(1000)]
    for wnid in wnids:
        (tmp_path / "test" / wnid).mkdir(parents=True)
    Image.new("RGB", (4, 4)).save(tmp_path / "one.png")
    for wnid in wnids:
        (tmp_path / "test" / wnid / "a.png").hardlink_to(tmp_path / "one.png")
    images = open_data(str(tmp_path), split="test", outputs=1000)
    assert images.y.tolist() == list(range(1000))


def test_wnids_that_nobody_knows_are_refused(tmp_path: Path) -> None:
    root = fill(tmp_path, {"test/n01440764": 1, "test/n99999999": 1})
    with pytest.raises(InputError, match=r"n99999999, whose ImageNet index"):
        open_data(str(root), split="test", outputs=1000)


@pytest.mark.parametrize(
    ("size", "given", "expected"),
    [((12, 12), None, 12), ((30, 20), None, 224), ((12, 12), 8, 8), ((30, 20), 16, 16)],
)
def test_the_size_is_given_or_that_of_the_files(
    tmp_path: Path, size: tuple[int, int], given: int | None, expected: int
) -> None:
    root = fill(tmp_path, {"test/a": 2}, size=size)
    images = open_data(str(root), split="test", size=given)
    x, _ = next(iter(images.batches(2)))
    assert images.shape == (3, expected, expected)
    assert x.shape == (2, 3, expected, expected)


def test_a_zoo_network_sets_size_and_channels(tmp_path: Path) -> None:
    root = fill(tmp_path, {"test/a": 2})
    assert open_data(str(root), split="test", entry=NETWORKS["vgg16"]).shape == (3, 32, 32)
    digits = open_data(str(root), split="test", entry=NETWORKS["small-conv"])
    x, _ = next(iter(digits.batches(2)))
    assert x.shape == (2, 1, 8, 8)


def test_training_batches_from_files_repeat(tmp_path: Path) -> None:
    root = fill(tmp_path, {"train/a": 6, "test/a": 1}, size=(20, 14))
    batches = open_data(str(root), split="train", size=8).batches(
        4, shuffle=1, augment="resized-crop"
    )
    once, again = list(batches), list(batches)
    assert [tuple(x.shape) for x, _ in once] == [(4, 3, 8, 8), (2, 3, 8, 8)]
    assert all(torch.equal(a, b) for (a, _), (b, _) in zip(once, again, strict=True))


def test_other_files_are_passed_over_and_counted(tmp_path: Path) -> None:
    root = fill(tmp_path, {"test/a": 2})
    (root / "test/a/notes.txt").write_text("x")
    (root / "test/a/.hidden.png").write_text("x")
    images = open_data(str(root), split="test")
    assert len(images) == 2
    assert "1 files that are no images passed over" in images.origin


def test_folders_that_cannot_be_used_are_explained(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no images in .*CLASS/\*\.jpg"):
        open_data(str(tmp_path), split="test")
    root = fill(tmp_path / "empty", {"a": 2, "b": 0})
    with pytest.raises(InputError, match=r"empty/b holds no images"):
        open_data(str(root), split="test")
    root = fill(tmp_path / "few", {"a": 1, "b": 1})
    with pytest.raises(InputError, match="too few images per class"):
        open_data(str(root), split="test")
    root = fill(tmp_path / "only", {"test/a": 1})
    with pytest.raises(InputError, match=r"holds test but no train or calibration"):
        open_data(str(root), split="train")
    root = fill(tmp_path / "broken", {"test/a": 2})
    (root / "test/a/000.png").write_bytes(b"no image")
    with pytest.raises(InputError, match=r"000\.png cannot be read"):
        open_data(str(root), split="test")

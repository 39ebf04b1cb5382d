"""The binary files of CIFAR-10 against records written by hand."""

from pathlib import Path

import numpy as np
import pytest
import torch

from snacs.errors import InputError
from snacs.zoo.data import cifar, data_folder, open_data
from snacs.zoo.download import Release

Tiny = tuple[Path, Release]


def test_a_record_is_a_label_and_three_planes(tmp_path: Path) -> None:
    record = np.zeros(cifar.RECORD, dtype=np.uint8)
    record[0] = 7
    record[1 + 0 * 1024 + 5 * 32 + 9] = 11  # red, row 5, column 9
    record[1 + 2 * 1024 + 31 * 32 + 0] = 22  # blue, last row, first column
    (tmp_path / "a.bin").write_bytes(record.tobytes() * 2)
    x, y = cifar.read_records(tmp_path / "a.bin")
    assert x.shape == (2, 3, 32, 32)
    assert y.tolist() == [7, 7]
    assert (int(x[1, 0, 5, 9]), int(x[0, 2, 31, 0]), int(x.sum())) == (11, 22, 66)


@pytest.mark.parametrize(
    ("split", "count"), [("train", 150), ("calibration", 150), ("test", 30), ("all", 180)]
)
def test_splits(tiny_cifar10: Tiny, split: str, count: int) -> None:
    folder, _ = tiny_cifar10
    images = open_data(f"cifar10:{folder}", split=split)
    above = open_data(f"cifar10:{folder.parent}", split=split)
    assert len(images) == count
    assert images.classes[3] == "cat"
    assert images.shape == (3, 32, 32)
    (x, y), (same, _) = next(iter(images.batches(200))), next(iter(above.batches(200)))
    assert torch.equal(x, same)
    assert torch.equal(torch.bincount(y), torch.full((10,), count // 10))


def test_the_data_folder_is_that_of_the_environment(
    tiny_cifar10: Tiny, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder, _ = tiny_cifar10
    monkeypatch.setenv("SNACS_DATA", str(folder.parent))
    assert len(open_data("cifar10", split="test")) == 30
    monkeypatch.delenv("SNACS_DATA")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert data_folder() == tmp_path / ".cache" / "snacs" / "data"
    with pytest.raises(InputError, match="Run `snacs data cifar10`"):
        open_data("cifar10", split="test")


def test_damaged_folders_are_explained(tiny_cifar10: Tiny) -> None:
    folder, _ = tiny_cifar10
    path = folder / "data_batch_3.bin"
    content = path.read_bytes()
    path.write_bytes(content[:-1])
    with pytest.raises(InputError, match=r"data_batch_3\.bin has .* truncated"):
        open_data(f"cifar10:{folder}", split="train")
    path.write_bytes(content[: -cifar.RECORD])
    with pytest.raises(InputError, match=r"equally long.*data_batch_3\.bin: 89117"):
        open_data(f"cifar10:{folder}", split="train")
    path.write_bytes(bytes([10]) + content[1:])
    with pytest.raises(InputError, match=r"data_batch_3\.bin holds the label 10"):
        open_data(f"cifar10:{folder}", split="train")
    path.unlink()
    with pytest.raises(InputError, match=r"data_batch_3\.bin is missing"):
        open_data(f"cifar10:{folder}", split="train")


def test_the_pickled_version_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data_batch_1").write_bytes(b"\x80\x02")
    with pytest.raises(InputError, match="Python version of CIFAR-10, a pickle"):
        open_data(f"cifar10:{tmp_path}", split="train")

"""Inputs from .npz files; nothing in them is unpickled."""

from pathlib import Path

import numpy as np
import pytest
import torch

from snacs.errors import InputError
from snacs.zoo.data import open_data
from snacs.zoo.data.images import InMemory


@pytest.mark.parametrize(
    ("shape", "expected"),
    [((10, 6, 7), (1, 6, 7)), ((10, 3, 6, 7), (3, 6, 7)), ((10, 6, 7, 3), (3, 6, 7))],
)
def test_bytes_become_channels_first_images(
    tmp_path: Path, shape: tuple[int, ...], expected: tuple[int, ...]
) -> None:
    x = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    np.savez(tmp_path / "a.npz", x=x, y=np.arange(10) % 2)
    images = open_data(str(tmp_path / "a.npz"), split="all")
    read, y = next(iter(images.batches(10)))
    assert images.shape == expected
    assert y.tolist() == [0, 1] * 5
    # Pixel (2, 5) of image 4 in its last channel, wherever the channels stood.
    value = x[4, 2, 5] if x.ndim == 3 else x[4, -1, 2, 5] if shape[1] == 3 else x[4, 2, 5, -1]
    assert float(read[4, -1, 2, 5]) == pytest.approx(value / 255)


def test_floats_of_any_shape_are_used_as_they_are(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(10, 5))
    np.savez(tmp_path / "a.npz", x=x, y=np.arange(10) % 2)
    images = open_data(str(tmp_path / "a.npz"), split="all")
    read, _ = next(iter(images.batches(10)))
    assert read.dtype == torch.float32
    assert np.array_equal(read.numpy(), x.astype(np.float32))


def test_named_parts_and_held_out_parts(tmp_path: Path) -> None:
    x = np.zeros((10, 4, 4), dtype=np.uint8)
    y = np.arange(10) % 2
    np.savez(tmp_path / "a.npz", x_train=x, y_train=y, x_test=x[:4] + 9, y_test=y[:4])
    np.savez(tmp_path / "b.npz", x=x, y=y)
    test = open_data(str(tmp_path / "a.npz"), split="test")
    assert isinstance(test.pixels, InMemory)
    assert int(test.pixels.x.min()) == 9
    assert len(open_data(str(tmp_path / "a.npz"), split="calibration")) == 10
    assert len(open_data(str(tmp_path / "a.npz"), split="all")) == 14
    parts = [len(open_data(str(tmp_path / "b.npz"), split=s)) for s in ("train", "test", "all")]
    assert parts == [8, 2, 10]


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": np.zeros((4, 3, 3), np.uint8)}, "no array 'y'"),
        ({"images": np.zeros(4)}, "no array 'x'; it holds images"),
        ({"x": np.zeros((4, 3, 3), np.uint8), "y": np.zeros(4)}, "whole numbers"),
        ({"x": np.zeros((4, 3, 3), np.uint8), "y": np.zeros(3, int)}, r"\(4, 3, 3\) and y"),
        ({"x": np.zeros((0, 3, 3), np.uint8), "y": np.zeros(0, int)}, "at least one"),
        ({"x": np.zeros((4, 3, 3), np.uint8), "y": np.full(4, -1)}, "not be negative"),
        ({"x": np.zeros((4, 3, 3), int), "y": np.zeros(4, int)}, "uint8 images or floats"),
        ({"x": np.zeros((4, 3), np.uint8), "y": np.zeros(4, int)}, r"\(n, h, w\)"),
        ({"x": np.full((4, 3), np.nan), "y": np.zeros(4, int)}, "NaN or infinite"),
        ({"x_test": np.zeros((4, 3)), "y_test": np.zeros(4, int)}, "no x_train"),
    ],
)
def test_unusable_arrays_are_named(
    tmp_path: Path, arrays: dict[str, np.ndarray], message: str
) -> None:
    np.savez(tmp_path / "bad.npz", **arrays)
    with pytest.raises(InputError, match=message) as caught:
        open_data(str(tmp_path / "bad.npz"), split="train")
    assert "bad.npz" in str(caught.value)


def test_pickled_arrays_and_foreign_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "bad.npz"
    np.savez(path, x=np.array([{}, {}], dtype=object), y=np.zeros(2, int))
    with pytest.raises(InputError, match="object arrays are refused"):
        open_data(str(path), split="all")
    np.savez(path, x=np.zeros((3, 2, 2), np.uint8), y=np.zeros(3, int))
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(InputError, match=r"cannot be read as \.npz"):
        open_data(str(path), split="all")
    path.write_bytes(b"hello")
    with pytest.raises(InputError, match=r"cannot be read as \.npz") as caught:
        open_data(str(path), split="all")
    assert "allow_pickle" not in str(caught.value)  # numpy's advice would be an unsafe one
    with path.open("wb") as stream:
        np.save(stream, np.zeros(3))
    with pytest.raises(InputError, match="one bare array"):
        open_data(str(path), split="all")
    with pytest.raises(InputError, match="no file"):
        open_data(str(tmp_path / "none.npz"), split="all")


def test_parts_of_two_shapes_are_refused(tmp_path: Path) -> None:
    path, y = tmp_path / "two.npz", np.arange(6) % 2
    x, other = np.zeros((6, 8, 8), np.uint8), np.zeros((6, 6, 6), np.uint8)
    np.savez(path, x_train=x, y_train=y, x_test=other, y_test=y)
    with pytest.raises(InputError, match=r"one shape.*x_train \(8, 8\), x_test \(6, 6\)"):
        open_data(str(path), split="train")


def test_too_few_to_hold_some_out_is_said_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "ten.npz"
    np.savez(path, x=np.zeros((2, 4, 4), np.uint8), y=np.arange(2))
    with pytest.raises(InputError, match=r"ten\.npz to hold some out for a test"):
        open_data(str(path), split="test")

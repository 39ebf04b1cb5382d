"""Image files: crops, modes, threads and broken files."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from snacs.errors import InputError
from snacs.zoo.data.pictures import Pictures, centre_crop, resized_crop


def everything(pictures: Pictures, *, crop_seed: int | None = None) -> torch.Tensor:
    return torch.cat(list(pictures.read([torch.arange(len(pictures))], crop_seed)))


def gradient(width: int, height: int) -> Image.Image:
    """Red grows to the right, green downwards, so that every crop tells where it was taken."""
    x, y = np.meshgrid(np.linspace(0, 255, width), np.linspace(0, 255, height))
    return Image.fromarray(np.stack([x, y, 0 * x], axis=-1).astype(np.uint8))


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, ...]:
    generator = np.random.default_rng(0)
    paths = []
    for i in range(12):
        side = generator.integers(40, 90, 2)
        paths.append(tmp_path / f"{i:02}.jpg")
        gradient(int(side[0]), int(side[1])).save(paths[-1])
    return tuple(paths)


def test_images_of_the_right_size_are_not_resized() -> None:
    image = gradient(24, 24)
    assert centre_crop(image, 24) is image


def test_others_are_resized_and_cropped_in_the_centre() -> None:
    cropped = np.asarray(centre_crop(gradient(512, 256), 224)).astype(float)
    assert cropped.shape == (224, 224, 3)
    # The short side is already 256: rows 16…239 of it and columns 144…367 of 512 remain, exactly.
    expected = np.asarray(gradient(512, 256))[16:240, 144:368]
    assert np.array_equal(cropped, expected)
    tall = np.asarray(centre_crop(gradient(100, 300), 56)).astype(float)
    # 64 × 192 after resizing; the centre of the image stays the centre, one level of rounding.
    assert tall.shape == (56, 56, 3)
    assert abs(tall[..., 0].mean() - 127.5) < 1
    assert abs(tall[..., 1].mean() - 127.5) < 1


def test_resized_crops_show_a_part_of_the_allowed_size_flipped_half_the_time() -> None:
    image = gradient(200, 150)
    flipped, areas = 0, []
    for seed in range(200):
        crop = np.asarray(resized_crop(image, 32, 3, np.random.default_rng(seed))).astype(float)
        across = crop[:, -1, 0].mean() - crop[:, 0, 0].mean()
        down = crop[-1, :, 1].mean() - crop[0, :, 1].mean()
        flipped += across < 0
        areas.append(abs(across * down) / 255**2)
    # 100 expected, standard deviation 7: five of them.
    assert 65 < flipped < 135
    # Resampling loses up to a pixel of 32 at each border, 6 % of each side.
    assert min(areas) > 0.08 * 0.94**2 - 0.01
    assert max(areas) <= 1
    assert np.std(areas) > 0.1


def test_very_long_images_are_cropped_too() -> None:
    for size in ((1000, 10), (10, 1000), (1, 1)):
        crop = resized_crop(gradient(*size), 8, 3, np.random.default_rng(0))
        assert crop.size == (8, 8)


@pytest.mark.parametrize("crop_seed", [None, 5])
def test_threads_and_batches_do_not_change_what_is_read(
    files: tuple[Path, ...], crop_seed: int | None
) -> None:
    one = everything(Pictures(files, 32, workers=1), crop_seed=crop_seed)
    four = Pictures(files, 32, workers=4)
    order = torch.randperm(12, generator=torch.Generator().manual_seed(0))
    parts = list(four.read(list(torch.split(order, 5)), crop_seed))
    assert [len(part) for part in parts] == [5, 5, 2]
    assert torch.equal(torch.cat(parts), one[order])
    assert one.shape == (12, *four.shape)
    if crop_seed is not None:
        assert not torch.equal(one, everything(four, crop_seed=crop_seed + 1))


def test_large_jpegs_decoded_small_show_the_same_part(tmp_path: Path) -> None:
    """The crop of a 1600-pixel JPEG, decoded at a fraction of its size, against the PNG's."""
    image = gradient(1600, 1200)
    image.save(tmp_path / "a.jpg", quality=98)
    image.save(tmp_path / "a.png")
    jpeg, png = (
        everything(Pictures((tmp_path / name,), 48), crop_seed=3).float()
        for name in ("a.jpg", "a.png")
    )
    # A smooth image: JPEG's own loss and half a coarse pixel are within 3 of 255 levels.
    assert float((jpeg - png).abs().max()) <= 3


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "I;16"])
@pytest.mark.parametrize("channels", [1, 3])
def test_all_modes_become_rgb_or_grey(tmp_path: Path, mode: str, channels: int) -> None:
    path = tmp_path / ("a.tif" if mode == "CMYK" else "a.png")
    if mode == "I;16":
        image = Image.fromarray(np.full((8, 8), 255 * 257, dtype=np.uint16))
    else:
        image = Image.new("RGB", (8, 8), "white").convert(mode)
    image.save(path)
    x = everything(Pictures((path,), 8, channels))
    assert x.shape == (1, channels, 8, 8)
    assert int(x.min()) == 255


def test_sixteen_bits_are_scaled_not_clipped(tmp_path: Path) -> None:
    Image.fromarray(np.full((8, 8), 100 * 256, dtype=np.uint16)).save(tmp_path / "a.png")
    assert int(everything(Pictures((tmp_path / "a.png",), 8)).max()) == 100


@pytest.mark.parametrize("damage", ["truncated", "text", "empty", "missing"])
def test_corrupt_files_are_named(files: tuple[Path, ...], damage: str) -> None:
    bad = files[7]
    content = bad.read_bytes()
    if damage == "missing":
        bad.unlink()
    else:
        bad.write_bytes({"truncated": content[:400], "text": b"no image", "empty": b""}[damage])
    with pytest.raises(InputError, match=r"07\.jpg cannot be read"):
        everything(Pictures(files, 32))


def test_reading_can_be_stopped_early(files: tuple[Path, ...]) -> None:
    reader = Pictures(files, 32).read(list(torch.split(torch.arange(12), 1)), None)
    assert next(reader).shape == (1, 3, 32, 32)
    reader.close()  # type: ignore[attr-defined]
    assert list(reader) == []

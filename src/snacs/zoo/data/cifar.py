"""CIFAR-10 in its binary version: six files of records, one label byte and 3 × 32 × 32 pixels.

The Python version of the data set is a pickle and is not read.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from snacs.errors import InputError
from snacs.zoo.data.images import Images, InMemory
from snacs.zoo.entry import Normalisation

FOLDER = "cifar-10-batches-bin"
TRAIN_FILES = tuple(f"data_batch_{i}.bin" for i in range(1, 6))
TEST_FILE = "test_batch.bin"
NAMES_FILE = "batches.meta.txt"
NAMES = (
    *("airplane", "automobile", "bird", "cat", "deer"),
    *("dog", "frog", "horse", "ship", "truck"),
)
SHAPE = (3, 32, 32)
RECORD = 1 + 3 * 32 * 32


def data_folder() -> Path:
    """Where downloaded data sets live: ``$SNACS_DATA``, or ``~/.cache/snacs/data``."""
    given = os.environ.get("SNACS_DATA")
    return Path(given).expanduser() if given else Path.home() / ".cache" / "snacs" / "data"


def cifar10(
    folder: Path | None = None, *, split: str, normalisation: Normalisation | None
) -> Images:
    """CIFAR-10 from a folder that holds ``cifar-10-batches-bin`` or is it.

    Parameters
    ----------
    folder : default :func:`data_folder`.
    split : "train" (50,000), "test" (10,000) or "all"; "calibration" is "train".
    """
    place = find_folder(data_folder() if folder is None else folder)
    files = {"test": (TEST_FILE,), "all": (*TRAIN_FILES, TEST_FILE)}.get(split, TRAIN_FILES)
    sizes = {name: _size(place / name) for name in (*TRAIN_FILES, TEST_FILE)}
    if len(set(sizes.values())) != 1:
        raise InputError(
            f"The six files of CIFAR-10 in {place} must be equally long, but are "
            f"{', '.join(f'{name}: {size}' for name, size in sizes.items())} bytes. One is "
            f"damaged: delete {place} and run `snacs data cifar10`."
        )
    x, y = zip(*(read_records(place / name) for name in files), strict=True)
    return Images(
        pixels=InMemory(torch.cat(x)),
        y=torch.cat(y),
        classes=dict(enumerate(NAMES)),
        normalisation=normalisation,
        origin=f"CIFAR-10 in {place}, {split}",
    )


def find_folder(folder: Path) -> Path:
    """The folder with the binary files, at ``folder`` or one level below."""
    for place in (folder, folder / FOLDER):
        if (place / TEST_FILE).is_file():
            return place
    for place in (folder, folder / "cifar-10-batches-py"):
        if (place / "data_batch_1").is_file():
            raise InputError(
                f"{place} holds the Python version of CIFAR-10, a pickle, which snacs does not "
                "open. Get the binary version: `snacs data cifar10`."
            )
    raise InputError(
        f"CIFAR-10 is not in {folder} (looked for {FOLDER}/{TEST_FILE}). Run `snacs data cifar10` "
        "to download it, `snacs data cifar10 --source FOLDER_OR_ARCHIVE` to use a copy, or set "
        "SNACS_DATA to the folder that holds it. Where only npm can be reached, a checkout has "
        "scripts/cifar10_from_npm.py."
    )


def read_records(path: Path) -> tuple[Tensor, Tensor]:
    """Pixels (n, 3, 32, 32) uint8 and labels (n,) int64 of one file."""
    _size(path)
    records = np.fromfile(path, dtype=np.uint8).reshape(-1, RECORD)
    labels = records[:, 0]
    if labels.max() >= len(NAMES):
        raise InputError(
            f"{path} holds the label {labels.max()}, CIFAR-10 has 0 to 9: this is another data "
            "set or a damaged file."
        )
    x = torch.from_numpy(records[:, 1:].copy()).view(-1, *SHAPE)
    return x, torch.from_numpy(labels.astype(np.int64))


def _size(path: Path) -> int:
    try:
        size = path.stat().st_size
    except OSError as error:
        raise InputError(
            f"{path} is missing: run `snacs data cifar10` into a fresh folder."
        ) from error
    if size == 0 or size % RECORD:
        raise InputError(
            f"{path} has {size} bytes, not a positive multiple of {RECORD}: it is truncated or "
            "not the binary version of CIFAR-10. Delete it and run `snacs data cifar10`."
        )
    return size

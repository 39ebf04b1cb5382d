"""Where the real weights and images are, and a small CIFAR-10 of our own making."""

import hashlib
import os
from pathlib import Path

import numpy as np
import pytest

from snacs.zoo.data import cifar
from snacs.zoo.download import Release, write_names

REPOSITORY = Path(__file__).parents[2]
PER_CLASS = 3


@pytest.fixture
def shared() -> Path:
    folder = Path(os.environ.get("SNACS_SHARED", REPOSITORY.parent / "shared"))
    if not (folder / "weights").is_dir():
        pytest.skip(f"no real weights in {folder} (set SNACS_SHARED)")
    return folder


@pytest.fixture
def real_cifar10() -> Path:
    folder = cifar.data_folder() / cifar.FOLDER
    if not folder.is_dir():
        pytest.skip(f"no CIFAR-10 in {folder} (run `snacs data cifar10`)")
    return folder


@pytest.fixture
def tiny_cifar10(tmp_path: Path) -> tuple[Path, Release]:
    """Six files of 3 images per class, and the release that would have published them."""
    folder = tmp_path / "origin" / cifar.FOLDER
    folder.mkdir(parents=True)
    generator = np.random.default_rng(0)
    hashes = {}
    for name in (*cifar.TRAIN_FILES, cifar.TEST_FILE):
        records = generator.integers(0, 256, (10 * PER_CLASS, cifar.RECORD), dtype=np.uint8)
        records[:, 0] = np.repeat(np.arange(10), PER_CLASS)
        (folder / name).write_bytes(records.tobytes())
        hashes[name] = hashlib.sha256(records.tobytes()).hexdigest()
    write_names(folder)
    release = Release(
        url="http://127.0.0.1:9/none",
        sha256="0" * 64,
        files=hashes,
        train_per_class=5 * PER_CLASS,
        test_per_class=PER_CLASS,
    )
    return folder, release

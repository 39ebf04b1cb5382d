"""Data by name: which normalisation, which errors."""

from pathlib import Path

import numpy as np
import pytest

from snacs.errors import InputError
from snacs.zoo.data import open_data
from snacs.zoo.download import Release
from snacs.zoo.entry import Normalisation
from snacs.zoo.networks import CIFAR10, DIGITS, IMAGENET, NETWORKS


def test_normalisation_is_the_given_the_networks_or_the_data_sets(
    tiny_cifar10: tuple[Path, Release],
) -> None:
    spec = f"cifar10:{tiny_cifar10[0]}"
    own = Normalisation((0, 0, 0), (1, 1, 1))
    entry = NETWORKS["resnet56"]
    assert open_data(spec, split="test", entry=entry, normalisation=own).normalisation == own
    assert open_data(spec, split="test", entry=entry).normalisation == IMAGENET
    assert open_data(spec, split="test").normalisation == CIFAR10
    assert open_data("digits", split="test").normalisation == DIGITS


def test_data_that_do_not_fit_the_network_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"1 channel\(s\), the network 'resnet56' expects 3"):
        open_data("digits", split="test", entry=NETWORKS["resnet56"])
    with pytest.raises(InputError, match="labels up to 9, the network only 4 outputs"):
        open_data("digits", split="test", outputs=4)
    x = np.zeros((4, 3, 8, 8), np.uint8)
    np.savez(tmp_path / "a.npz", x=x, y=np.arange(4))
    with pytest.raises(InputError, match=r"3 channel\(s\), the network 'small-conv' expects 1"):
        open_data(str(tmp_path / "a.npz"), split="all", entry=NETWORKS["small-conv"])


@pytest.mark.parametrize(
    ("spec", "options", "message"),
    [
        ("digist", {}, "no data 'digist'. Give 'digits', 'cifar10'"),
        ("digits", {"split": "tset"}, "train, calibration, test, all. Got 'tset'"),
        ("digits", {"size": 8}, "fixed size"),
        (".", {"size": 0}, "'size' must be at least 1"),
        (".", {"normalisation": Normalisation((0, 0), (1, 1))}, "1 or 3 channels"),
    ],
)
def test_wrong_names_and_options(spec: str, options: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        open_data(spec, **{"split": "test", **options})  # type: ignore[arg-type]

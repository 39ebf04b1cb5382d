"""Finding data by what a user types: ``digits``, ``cifar10``, a folder or an .npz file."""

from __future__ import annotations

from pathlib import Path

from snacs.errors import InputError
from snacs.zoo.data.arrays import npz
from snacs.zoo.data.cifar import cifar10
from snacs.zoo.data.digits import digits
from snacs.zoo.data.folders import image_folder
from snacs.zoo.data.images import Images, InMemory
from snacs.zoo.entry import Entry, Normalisation
from snacs.zoo.networks import CIFAR10, DIGITS

SPLITS = ("train", "calibration", "test", "all")


def open_data(
    spec: str,
    *,
    split: str,
    entry: Entry | None = None,
    normalisation: Normalisation | None = None,
    outputs: int | None = None,
    size: int | None = None,
) -> Images:
    """Open one split of a data set.

    Parameters
    ----------
    spec : "digits", "cifar10", "cifar10:FOLDER", a folder of images or an .npz file.
    split : "train", "calibration" (where a data set has none: the training images), "test", "all".
    entry : the zoo's entry of the network, for input size, outputs and default normalisation.
    normalisation : of the weights (see :func:`~snacs.zoo.weights.normalisation_of`); default the
        entry's, else the data set's own for digits and CIFAR-10, else none: images in [0, 1].
    outputs : of a network that is not in the zoo; labels are checked against them.
    size : side of the images of a folder.

    >>> len(open_data("digits", split="test"))
    450
    """
    if split not in SPLITS:
        raise InputError(f"'split' must be one of {', '.join(SPLITS)}. Got {split!r}.")
    if size is not None and size < 1:
        raise InputError(f"'size' must be at least 1 pixel. Got {size}.")
    if outputs is None and entry is not None:
        outputs = entry.classes
    if normalisation is None and entry is not None:
        normalisation = entry.normalisation
    images = _open(spec, split, entry, normalisation, outputs, size)
    _check(spec, images, entry, outputs)
    return images


def _open(
    spec: str,
    split: str,
    entry: Entry | None,
    normalisation: Normalisation | None,
    outputs: int | None,
    size: int | None,
) -> Images:
    name, _, rest = spec.partition(":")
    if size is not None and (name in ("digits", "cifar10") or spec.endswith(".npz")):
        raise InputError(f"'size' is for folders of images; {spec!r} has images of a fixed size.")
    if spec == "digits":
        return digits(split=split, normalisation=normalisation or DIGITS)
    if name == "cifar10":
        folder = Path(rest).expanduser() if rest else None
        return cifar10(folder, split=split, normalisation=normalisation or CIFAR10)
    path = Path(spec).expanduser()
    if path.suffix == ".npz":
        return npz(path, split=split, normalisation=normalisation)
    if path.is_dir():
        channels = 3 if normalisation is None else len(normalisation.mean)
        if channels not in (1, 3):
            raise InputError(
                f"Image files have 1 or 3 channels, the normalisation has {channels}. "
                "Give the data as an .npz file."
            )
        return image_folder(
            path,
            split=split,
            normalisation=normalisation,
            outputs=outputs,
            size=size or (entry.shape[-1] if entry is not None else None),
            channels=channels,
        )
    raise InputError(
        f"There is no data {spec!r}. Give 'digits', 'cifar10', 'cifar10:FOLDER', a folder with one "
        "folder of images per class, or an .npz file with x and y."
    )


def _check(spec: str, images: Images, entry: Entry | None, outputs: int | None) -> None:
    expected = None if entry is None else entry.shape[0]
    if images.normalisation is not None:
        expected = len(images.normalisation.mean)
    shape = images.shape
    scaled = not isinstance(images.pixels, InMemory) or not images.pixels.x.is_floating_point()
    if scaled and expected is not None and shape[0] != expected:
        raise InputError(
            f"The images of {spec!r} have {shape[0]} channel(s), the network"
            f"{f' {entry.name!r}' if entry is not None else ''} expects {expected}. Choose data "
            "with as many channels, or another network."
        )
    highest = max(images.classes)
    if outputs is not None and highest >= outputs:
        raise InputError(
            f"The data {spec!r} has labels up to {highest}, the network only {outputs} outputs "
            f"(labels 0 to {outputs - 1}). Use the data that the network was trained on."
        )

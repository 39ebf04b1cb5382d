"""Folders of image files in the ImageNet layout: ``root/class/*`` or ``root/split/class/*``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from PIL import Image

from snacs.errors import InputError
from snacs.zoo.data.imagenet import CLASSES, are_wnids, labels_of_wnids
from snacs.zoo.data.images import Images, stratified_split
from snacs.zoo.data.pictures import SUFFIXES, Pictures
from snacs.zoo.entry import Normalisation

DEFAULT_SIZE = 224
HELD_OUT = 0.2
"""Share of each class that is the test split of data without one."""
_TRAIN, _CALIBRATION, _TEST = ("train",), ("calibration",), ("test", "val", "validation")
_LOOKED_AT = 16


@dataclass(frozen=True)
class Found:
    """Class folders of one part of the data: files by class name, and what was passed over."""

    files: dict[str, list[Path]]
    ignored: int


def image_folder(
    root: Path,
    *,
    split: str,
    normalisation: Normalisation | None,
    outputs: int | None = None,
    size: int | None = None,
    channels: int = 3,
) -> Images:
    """Images of a folder.

    ``root/{train,calibration,test|val|validation}/class/*`` is divided as its author did: "train"
    falls back on calibration and the other way round. Where there is no test part, a fixed fifth
    of every class is held out of the rest. Classes are numbered in alphabetical order over all
    parts, or, if their folders are WordNet ids and the network has 1000 outputs, as in ImageNet.

    Parameters
    ----------
    split : "train", "calibration", "test" or "all".
    size : side of the images; default: that of the files if they are equal squares, else 224.
        Files of that size are taken as they are, others resized to 8/7 of it and centre-cropped.
    """
    found, held_out = _choose(root, split)
    names = sorted(found[0].files)
    numbered = _numbered(names, outputs)
    paths, labels = [], []
    for name in names:
        for part in found:
            paths += part.files[name]
            labels += [numbered[name][0]] * len(part.files[name])
    pixels = Pictures(tuple(paths), size or _common_size(paths) or DEFAULT_SIZE, channels)
    ignored = sum(part.ignored for part in found)
    images = Images(
        pixels=pixels,
        y=torch.tensor(labels, dtype=torch.int64),
        classes=dict(sorted(numbered.values())),
        normalisation=normalisation,
        origin=f"images in {root}, {split}"
        + (f"; {ignored} files that are no images passed over" if ignored else "")
        + (f"; no test part there: {HELD_OUT:.0%} of each class held out" if held_out else ""),
    )
    return hold_out(images, split) if held_out else images


def hold_out(images: Images, split: str) -> Images:
    """The train or test part of data that nobody has divided: always the same fifth is test."""
    train, test = stratified_split(images.y, held_out=HELD_OUT, seed=0)
    chosen = test if split == "test" else train
    if not len(chosen):
        place = images.origin.partition(f", {split}")[0]
        raise InputError(
            f"There are too few images per class in {place} to hold some out "
            "for a test. Give at least 3 per class, or a test part (test/, x_test and y_test)."
        )
    return images.subset(chosen)


def _choose(root: Path, split: str) -> tuple[list[Found], bool]:
    """The parts that make up a split, and whether its test images must still be held out."""
    if not root.is_dir():
        raise InputError(f"There is no folder {root}.")
    parts = {
        folder.name: folder
        for folder in _folders(root)
        if folder.name in (*_TRAIN, *_CALIBRATION, *_TEST) and _folders(folder)
    }
    if not parts:
        classes = [folder.name for folder in _folders(root)]
        return [_collect(root, classes)], split != "all"
    # Over all parts, so that a class that one part lacks does not shift the others' numbers.
    classes = sorted({folder.name for part in parts.values() for folder in _folders(part)})
    if split == "all":
        return [_collect(folder, classes) for folder in parts.values()], False
    has_test = any(name in parts for name in _TEST)
    wanted: Sequence[str] = {
        "train": (*_TRAIN, *_CALIBRATION),
        "calibration": (*_CALIBRATION, *_TRAIN),
        "test": _TEST if has_test else (*_TRAIN, *_CALIBRATION),
    }[split]
    name = next((name for name in wanted if name in parts), None)
    if name is None:
        raise InputError(
            f"{root} holds {', '.join(sorted(parts))} but no {' or '.join(wanted)} folder, which "
            f"is needed for {split!r}."
        )
    # A test part held out of train does not touch a calibration folder beside it.
    source = next((name for name in (*_TRAIN, *_CALIBRATION) if name in parts), None)
    return [_collect(parts[name], classes)], not has_test and name == source


def _collect(folder: Path, classes: Iterable[str]) -> Found:
    files: dict[str, list[Path]] = {}
    ignored = 0
    for name in classes:
        place = folder / name
        entries = sorted(place.iterdir()) if place.is_dir() else []
        visible = [e for e in entries if e.is_file() and not e.name.startswith(".")]
        files[name] = [e for e in visible if e.suffix.lower() in SUFFIXES]
        ignored += len(visible) - len(files[name])
        if place.is_dir() and not files[name]:
            raise InputError(
                f"The class folder {place} holds no images ({', '.join(SUFFIXES)}). Remove it or "
                "put images into it."
            )
    if not any(files.values()):
        raise InputError(
            f"There are no images in {folder}. Expected one folder per class with images in it: "
            f"{folder}/CLASS/*.jpg, or {folder}/train/CLASS/*.jpg and {folder}/test/CLASS/*.jpg."
        )
    return Found(files, ignored)


def _numbered(names: Sequence[str], outputs: int | None) -> dict[str, tuple[int, str]]:
    if outputs == CLASSES and are_wnids(names):
        return labels_of_wnids(names)
    return {name: (label, name) for label, name in enumerate(names)}


def _common_size(paths: Sequence[Path]) -> int | None:
    """The side of the files if those looked at are squares of one size; reads headers only."""
    step = max(1, len(paths) // _LOOKED_AT)
    sizes = set()
    for path in paths[::step]:
        try:
            with Image.open(path) as image:
                sizes.add(image.size)
        except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
            raise InputError(
                f"The image {path} cannot be read: {error}. Repair or remove the file."
            ) from error
    width, height = sizes.pop()
    return width if not sizes and width == height else None


def _folders(folder: Path) -> list[Path]:
    return sorted(e for e in folder.iterdir() if e.is_dir() and not e.name.startswith("."))

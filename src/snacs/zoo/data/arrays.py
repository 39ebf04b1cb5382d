"""Images, or any other inputs, in an .npz file with the arrays ``x`` and ``y``."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from snacs.errors import InputError
from snacs.zoo.data.folders import HELD_OUT, hold_out
from snacs.zoo.data.images import Images, InMemory
from snacs.zoo.entry import Normalisation

_NAMES = {"train": ("train", "calibration"), "calibration": ("calibration", "train")}


def npz(path: Path, *, split: str, normalisation: Normalisation | None) -> Images:
    """Labelled inputs of an .npz file.

    ``x`` is uint8, (n, h, w), (n, c, h, w) or (n, h, w, c) with 1 or 3 channels: scaled to [0, 1]
    and normalised; or floats of any shape (n, …), which are used as they are. ``y`` holds n class
    indices. Arrays ``x_train``, ``y_train``, ``x_calibration``, ``x_test`` … divide the data;
    otherwise a fixed fifth of every class is the test split. Nothing in the file is unpickled.
    """
    arrays = _read(path)
    known = [part for part in ("train", "calibration", "test") if f"x_{part}" in arrays]
    if split == "all":
        parts, held_out = ([f"_{part}" for part in known] or [""]), False
    elif not known:
        parts, held_out = [""], True
    else:
        names = _NAMES.get(split, (split,))
        part = next((name for name in names if name in known), None)
        if part is None:
            raise InputError(
                f"{path} holds x_{', x_'.join(known)} but no x_{split}, which is needed for "
                f"{split!r}. Add x_{split} and y_{split}, or give only x and y."
            )
        parts, held_out = [f"_{part}"], False
    _check_shapes(path, arrays, known)
    pieces = [_checked(path, arrays, part) for part in parts]
    x, y = torch.cat([x for x, _ in pieces]), torch.cat([y for _, y in pieces])
    images = Images(
        pixels=InMemory(x),
        y=y,
        classes={label: str(label) for label in sorted(set(y.tolist()))},
        normalisation=normalisation if x.dtype == torch.uint8 else None,
        origin=f"{path}, {split}"
        + (f"; no test part there: {HELD_OUT:.0%} of each class held out" if held_out else ""),
    )
    return hold_out(images, split) if held_out else images


def _read(path: Path) -> dict[str, NDArray[Any]]:
    try:
        # Opened here, because numpy leaves files open that turn out not to be archives.
        with path.open("rb") as stream:
            file = np.load(stream, allow_pickle=False)
            if isinstance(file, np.ndarray):
                raise InputError(f"{path} holds one bare array. Expected an .npz with x and y.")
            return {name: file[name] for name in file.files}
    except InputError:
        raise
    except FileNotFoundError as error:
        raise InputError(f"There is no file {path}.") from error
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, KeyError) as error:
        # numpy takes whatever it does not know for a pickle, and advises to open it unsafely.
        why = "it is no archive of arrays" if "pickled" in str(error) else str(error)
        raise InputError(
            f"{path} cannot be read as .npz with plain arrays: {why}. Write it with "
            "np.savez(path, x=images, y=labels); object arrays are refused, they are pickles."
        ) from error


def _check_shapes(path: Path, arrays: dict[str, NDArray[Any]], parts: list[str]) -> None:
    """All parts must hold inputs of one shape: a network may read others without a word."""
    shapes = {f"x_{part}": arrays[f"x_{part}"].shape[1:] for part in parts}
    if len(set(shapes.values())) > 1:
        told = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
        raise InputError(f"The inputs in {path} must all have one shape. Got {told}.")


def _checked(path: Path, arrays: dict[str, NDArray[Any]], part: str) -> tuple[Tensor, Tensor]:
    for name in (f"x{part}", f"y{part}"):
        if name not in arrays:
            raise InputError(
                f"{path} has no array {name!r}; it holds {', '.join(sorted(arrays)) or 'nothing'}."
            )
    x, y = arrays[f"x{part}"], arrays[f"y{part}"]
    where = f"in {path}"
    if y.ndim != 1 or not np.issubdtype(y.dtype, np.integer):
        raise InputError(
            f"y{part} {where} must be one class index per image, whole numbers of shape (n,). "
            f"Got {y.dtype} of shape {y.shape}."
        )
    if x.ndim < 2 or len(x) != len(y) or not len(y):
        raise InputError(
            f"x{part} {where} must hold one input per label, and at least one. Got x of shape "
            f"{x.shape} and y of shape {y.shape}."
        )
    if int(y.min()) < 0:
        raise InputError(f"y{part} {where} must not be negative. Got {int(y.min())}.")
    return _inputs(x, f"x{part} {where}"), torch.from_numpy(y.astype(np.int64))


def _inputs(x: NDArray[Any], where: str) -> Tensor:
    if np.issubdtype(x.dtype, np.floating):
        if not np.isfinite(x).all():
            raise InputError(f"{where} holds NaN or infinite values; remove those inputs.")
        return torch.from_numpy(x.astype(np.float32))
    if x.dtype != np.uint8:
        raise InputError(
            f"{where} must be uint8 images or floats. Got {x.dtype}; convert it with x.astype."
        )
    if x.ndim == 3:
        x = x[:, None]
    elif x.ndim == 4 and x.shape[1] not in (1, 3) and x.shape[3] in (1, 3):
        x = x.transpose(0, 3, 1, 2)
    if x.ndim != 4:
        raise InputError(
            f"{where} must be uint8 of shape (n, h, w), (n, c, h, w) or (n, h, w, c). "
            f"Got {x.shape}."
        )
    return torch.from_numpy(np.ascontiguousarray(x))

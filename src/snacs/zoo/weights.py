"""Reading and writing weights as safetensors, with the normalisation they were trained with.

Pickles (.pt, .pth, .bin) are refused: a file from someone else must not be able to run code.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save
from torch import Tensor, nn

from snacs.errors import InputError
from snacs.files import write_file
from snacs.zoo.entry import Entry, Normalisation

_NORMALISATION = "normalisation"
_WRAPPER = "module."
_SHOWN = 5


def load_weights_(model: nn.Module, path: str | Path) -> None:
    """Fill a network with the weights of a safetensors file.

    Half-precision matrices are widened to the network's own type. A "module." before every key,
    left by DataParallel, is taken off. Only BatchNorm's counter ``num_batches_tracked``, which
    inference does not read, may be missing. Either everything is loaded or nothing is.

    Raises
    ------
    InputError
        For a missing, foreign, truncated or pickled file, and for keys that are missing,
        unexpected, of another shape, or hold NaN or infinite values; all of them are named.
    """
    path = Path(path)
    tensors = _read(path)
    own = model.state_dict()
    if (
        tensors
        and all(key.startswith(_WRAPPER) for key in tensors)
        and not any(key.startswith(_WRAPPER) for key in own)
    ):
        tensors = {key.removeprefix(_WRAPPER): value for key, value in tensors.items()}
    _check_keys(path, own, tensors)
    _check_finite(path, tensors)
    with torch.no_grad():
        for key, value in tensors.items():
            own[key].copy_(value)


def save_weights(
    model: nn.Module,
    path: str | Path,
    *,
    normalisation: Normalisation | None = None,
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Write a network's weights as safetensors, in one step.

    Parameters
    ----------
    normalisation : of the images it was trained on; stored as JSON in the file's metadata.
    metadata : further text by name, for example recipe, seed or accuracy.
    """
    notes = dict(metadata or {})
    if _NORMALISATION in notes:
        raise InputError(
            f"Give the normalisation as normalisation=, not as metadata {_NORMALISATION!r}."
        )
    for key, value in notes.items():
        if not isinstance(value, str):
            raise InputError(
                f"Metadata must be text. Got {type(value).__name__} for {key!r}; use json.dumps."
            )
    if normalisation is not None:
        notes[_NORMALISATION] = json.dumps(normalisation.as_dict())
    # Clones, because safetensors refuses tensors that share memory, such as tied weights.
    tensors = {
        key: value.detach().cpu().contiguous().clone() for key, value in model.state_dict().items()
    }
    write_file(Path(path), _ordered(save(tensors, metadata=notes)))


def _ordered(content: bytes) -> bytes:
    """The same file with its header sorted: safetensors writes metadata in any order."""
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    header = {key: header[key] for key in header if key != "__metadata__"} | {
        "__metadata__": dict(sorted(header.get("__metadata__", {}).items()))
    }
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + content[8 + length :]


def metadata_of(path: str | Path) -> dict[str, str]:
    """The text that a weights file carries beside its tensors."""
    path = Path(path)
    _check_readable(path)
    try:
        with safe_open(path, framework="pt") as file:
            return dict(file.metadata() or {})
    except (SafetensorError, OSError) as error:
        raise _unreadable(path, error) from error


def normalisation_of(path: str | Path | None, entry: Entry | None = None) -> Normalisation | None:
    """How images must be normalised for these weights.

    What the file says, else what the zoo knows about the network's published weights, else None:
    nobody knows, and images stay in [0, 1] unless the user says otherwise.
    """
    if path is not None:
        text = metadata_of(path).get(_NORMALISATION)
        if text is not None:
            try:
                value = json.loads(text)
            except json.JSONDecodeError as error:
                raise InputError(
                    f"The normalisation in the metadata of {path} is not JSON: {error}. Save the "
                    "weights again with save_weights(..., normalisation=...)."
                ) from error
            return Normalisation.from_dict(value, origin=f"the metadata of {path}")
    return None if entry is None else entry.normalisation


def weights_folder() -> Path:
    """Where weights of the zoo are looked for: ``$SNACS_WEIGHTS`` or ``~/.cache/snacs/weights``."""
    given = os.environ.get("SNACS_WEIGHTS")
    return Path(given).expanduser() if given else Path.home() / ".cache" / "snacs" / "weights"


def find_weights(network: str) -> Path | None:
    """The one ``network.safetensors`` or ``network-….safetensors`` there is, or None."""
    folder = weights_folder()
    names = (f"{network}.safetensors", f"{network}-*.safetensors")
    found = sorted(path for name in names for path in folder.glob(name))
    if len(found) > 1:
        raise InputError(
            f"There are several weights for {network} in {folder}: "
            f"{', '.join(path.name for path in found)}. Choose one with --weights."
        )
    return found[0] if found else None


def _read(path: Path) -> dict[str, Tensor]:
    _check_readable(path)
    try:
        return load_file(path)
    except (SafetensorError, OSError) as error:
        raise _unreadable(path, error) from error


def _check_readable(path: Path) -> None:
    if path.is_dir():
        raise InputError(f"{path} is a folder; give a .safetensors file.")
    try:
        with path.open("rb") as stream:
            start = stream.read(9)
    except FileNotFoundError as error:
        raise InputError(f"There is no weights file {path}.") from error
    except OSError as error:
        raise InputError(f"The weights file {path} cannot be read: {error}.") from error
    # A zip archive (torch.save since 1.6) or a bare pickle of protocol 2 and later. The length
    # that a safetensors file starts with may have that first byte too; its JSON follows at once.
    pickled = start[:1] == b"\x80" and start[8:9] != b"{"
    if start[:4] == b"PK\x03\x04" or pickled:
        raise InputError(
            f"{path} is a pickle as torch.save writes it. Opening a pickle can run any code in it, "
            "so snacs reads only safetensors. If you trust the file's origin, convert it once:\n"
            "  import torch, safetensors.torch\n"
            f"  state = torch.load({str(path)!r}, weights_only=True, map_location='cpu')\n"
            "  state = {k: v.clone().contiguous() for k, v in state.get('state_dict', state)"
            ".items()}\n"
            f"  safetensors.torch.save_file(state, {str(path.with_suffix('.safetensors'))!r})"
        )


def _unreadable(path: Path, error: Exception) -> InputError:
    return InputError(
        f"{path} is not a complete safetensors file ({error}). It may be truncated or of another "
        "format: copy or download it again."
    )


def _check_keys(path: Path, own: Mapping[str, Tensor], found: Mapping[str, Tensor]) -> None:
    missing = [k for k in own if k not in found and not k.endswith("num_batches_tracked")]
    unexpected = [key for key in found if key not in own]
    shapes = [
        f"{key} (file {tuple(found[key].shape)}, network {tuple(own[key].shape)})"
        for key in own
        if key in found and found[key].shape != own[key].shape
    ]
    problems = [
        f"{what}: {_some(names)}"
        for what, names in (
            ("missing in the file", missing),
            ("unknown to the network", unexpected),
            ("of another shape", shapes),
        )
        if names
    ]
    if problems:
        raise InputError(
            f"The weights in {path} do not fit the network. Keys {'; '.join(problems)}. "
            "Name the network that these weights belong to, with the same number of classes."
        )


def _check_finite(path: Path, tensors: Mapping[str, Tensor]) -> None:
    bad = [
        key
        for key, value in tensors.items()
        if value.is_floating_point() and not bool(torch.isfinite(value).all())
    ]
    if bad:
        raise InputError(
            f"The weights in {path} hold NaN or infinite values in {_some(bad)}. "
            "The training that made them diverged; use another checkpoint."
        )


def _some(names: Iterable[str]) -> str:
    names = list(names)
    rest = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {rest} more" if rest > 0 else "")

"""``load``: read what ``save`` wrote, trusting nothing in it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from snacs.artifact import container
from snacs.artifact.graph import describe_module, word_of
from snacs.artifact.packing import mask_of, unpack
from snacs.artifact.restored import build_module, restore
from snacs.errors import InputError, SnacsError
from snacs.network.masking import is_masked
from snacs.values import BoolArray

VERSION = 1
_MOST_PER_BYTE = 20_000
"""Numbers that one byte of a file may stand for: a row without connections needs one byte, and
the widest layers have some ten thousand weights per row."""


@dataclass(frozen=True, eq=False)
class Info:
    """What a file says about its network.

    ``masks`` holds ``keep`` (c_out, c_in) by layer, as :func:`snacs.network.masking.apply_` takes
    it; ``shapes`` the shape of every tensor.
    """

    standalone: bool
    provenance: dict[str, Any]
    masks: dict[str, BoolArray]
    shapes: dict[str, tuple[int, ...]]
    notes: tuple[str, ...]
    bytes: int


def load(path: str | os.PathLike[str], *, model: nn.Module | None = None) -> nn.Module:
    """Read a network from a file of :func:`snacs.save`.

    Parameters
    ----------
    path : file
        From anywhere: it cannot make anything run but torch's own modules and functions. A file
        that is foreign, cut, changed or inconsistent gives an :class:`~snacs.errors.InputError`.
    model : nn.Module, optional
        An instance of the class that was saved; it is filled and returned. Needed only where
        ``save`` said that the architecture could not be stored. Layers take the sizes of the file.

    Returns
    -------
    nn.Module
        In eval mode, on the CPU, pruned weights as plain zeros. Names and keys are those of the
        network that was saved.
    """
    with _clearly(path):
        document, parts, size = container.read(path)
        _check_version(document)
        tensors = _tensors(document, parts, size)
        modules = _mapping(document, "modules")
        trained = set(_names(document, "trained"))
        if model is not None:
            return _fill(model, modules, tensors, _names(document, "constants"))
        if document.get("graph") is None:
            notes = " ".join(str(note) for note in document.get("notes", ()))
            raise InputError(f"{path} holds no architecture. {notes}")
        return assemble(document["graph"], modules, tensors, trained).eval()


def inspect(path: str | os.PathLike[str]) -> Info:
    """What a file says about itself: provenance, masks, shapes, notes."""
    with _clearly(path):
        document, parts, size = container.read(path)
        _check_version(document)
        tensors = _tensors(document, parts, size)
        descriptions, tied = _mapping(document, "tensors"), _mapping(document, "tied")
        masks = {}
        for layer in _names(document, "masks"):
            name = f"{layer}.weight" if layer else "weight"
            name = tied.get(name, name)
            keep = mask_of(descriptions[name], name, parts)
            if keep is not None:
                masks[layer] = keep
        return Info(
            standalone=document.get("graph") is not None,
            provenance=dict(_mapping(document, "provenance")),
            masks=masks,
            shapes={name: tuple(tensor.shape) for name, tensor in tensors.items()},
            notes=tuple(str(note) for note in document.get("notes", ())),
            bytes=size,
        )


def assemble(
    graph: Any, modules: Mapping[str, Any], tensors: Mapping[str, Tensor], trained: set[str]
) -> nn.Module:
    """A network from its graph, with the tensors in it; shapes must be what the modules say."""
    network = restore(graph, modules, tensors)
    for name in [*network.state_dict(), *_hidden(network)]:
        if name not in tensors:
            raise InputError(f"its tensor {name[:80]!r} is missing")
    _assign(network, tensors, trained)
    return network


@contextmanager
def _clearly(path: str | os.PathLike[str]) -> Iterator[None]:
    """Whatever a hostile file provokes comes out as an error that names the file."""
    try:
        yield
    except SnacsError as error:
        if str(path) in str(error):
            raise
        raise InputError(f"{path} cannot be loaded: {error}.") from error
    except Exception as error:  # wrong types anywhere in a sealed file
        raise InputError(
            f"{path} cannot be loaded: its content makes no sense "
            f"({type(error).__name__}: {str(error)[:200]}). Save the network again."
        ) from error


def _check_version(document: Mapping[str, Any]) -> None:
    if document.get("version") != VERSION:
        raise InputError(
            f"it has version {str(document.get('version'))[:20]} of the format, and this snacs "
            f"reads version {VERSION}; use the snacs that wrote it, or save the network again"
        )


def _tensors(
    document: Mapping[str, Any], parts: Mapping[str, Tensor], size: int
) -> dict[str, Tensor]:
    left = size * _MOST_PER_BYTE
    tensors: dict[str, Tensor] = {}
    for name, description in _mapping(document, "tensors").items():
        tensors[name] = unpack(description, name, parts, most=left)
        left -= tensors[name].numel()
    for name, other in _mapping(document, "tied").items():
        if name in tensors or other not in tensors:
            raise InputError(f"the tensor {name!r} is tied to one that is not there")
        tensors[name] = tensors[other]
    return tensors


def _assign(network: nn.Module, tensors: Mapping[str, Tensor], trained: set[str]) -> None:
    """Put tensors in place of those on the meta device; one that is shared stays one object."""
    made: dict[int, nn.Parameter] = {}
    for name, old in _slots(network):
        tensor = tensors[name]
        if old.shape != tensor.shape:
            raise InputError(
                f"the tensor {name!r} has the shape {tuple(tensor.shape)}, its module expects "
                f"{tuple(old.shape)}"
            )
        if old.is_floating_point() != tensor.is_floating_point():
            raise InputError(f"the tensor {name!r} has the type {tensor.dtype}")
        parent, _, child = name.rpartition(".")
        holder = network.get_submodule(parent)
        if name not in trained or not tensor.is_floating_point():
            holder._parameters.pop(child, None)
            holder._buffers[child] = tensor
        else:
            holder._buffers.pop(child, None)
            parameter = made.setdefault(id(tensor), nn.Parameter(tensor))
            holder._parameters[child] = parameter


def _slots(network: nn.Module) -> list[tuple[str, Tensor]]:
    """Every place for a tensor: parameters and buffers, also those outside the state dict."""
    return [
        *network.named_parameters(remove_duplicate=False),
        *network.named_buffers(remove_duplicate=False),
    ]


def _hidden(network: nn.Module) -> list[str]:
    return [name for name, _ in _slots(network)]


def _fill(
    model: nn.Module, modules: Mapping[str, Any], tensors: dict[str, Tensor], constants: list[str]
) -> nn.Module:
    if is_masked(model):
        raise InputError(
            "The network given as model= carries masks; call snacs.remove_(model) first."
        )
    for name, description in modules.items():
        try:
            module = model.get_submodule(name)
        except AttributeError:
            raise InputError(
                f"The network given as model= has no module {name!r}, which the file has: it is "
                "of another architecture."
            ) from None
        if word_of(module) is None or describe_module(module) != description:
            fresh = build_module(description)
            if type(fresh) is not type(module) and not isinstance(fresh, nn.Identity):
                raise InputError(
                    f"Module {name!r} is a {type(module).__name__} in the network given as model= "
                    f"and a {type(fresh).__name__} in the file: it is of another architecture."
                )
            parent, _, child = name.rpartition(".")
            model.get_submodule(parent).add_module(child, fresh)
    state = {name: tensor for name, tensor in tensors.items() if name not in constants}
    own = model.state_dict()
    _compare_keys(own.keys(), state.keys())
    wrong = [name for name in own if own[name].shape != state[name].shape]
    if wrong:
        raise InputError(
            f"The tensor {wrong[0]!r} has the shape {tuple(state[wrong[0]].shape)} in the file and "
            f"{tuple(own[wrong[0]].shape)} in the network given as model=."
        )
    model.load_state_dict({n: t.clone() for n, t in state.items()}, assign=True)
    return model.eval()


def _compare_keys(own: Any, stored: Any) -> None:
    missing, unknown = sorted(own - stored), sorted(stored - own)
    if missing or unknown:
        raise InputError(
            "The network given as model= does not fit the file. Tensors missing in the file: "
            f"{', '.join(missing[:5]) or 'none'}; unknown to the network: "
            f"{', '.join(unknown[:5]) or 'none'}."
        )


def _mapping(document: Mapping[str, Any], key: str) -> dict[str, Any]:
    value = document.get(key)
    if not isinstance(value, dict):
        raise InputError(f"its {key} are missing")
    return value


def _names(document: Mapping[str, Any], key: str) -> list[str]:
    value = document.get(key)
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise InputError(f"its list of {key} is missing")
    return value

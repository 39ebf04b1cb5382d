"""``save``: a network, its masks and where it comes from, in one file without code."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save as to_safetensors
from torch import Tensor, fx, nn

from snacs.artifact import container
from snacs.artifact.codec import NotStorable
from snacs.artifact.graph import describe_graph, describe_modules
from snacs.artifact.loading import VERSION, assemble
from snacs.artifact.packing import pack
from snacs.artifact.restored import Restored
from snacs.config import PRESETS
from snacs.errors import InputError
from snacs.files import write_file
from snacs.network.batches import Forward, evaluating, move, run, tensors_of
from snacs.network.compaction.cutting import plain_copy
from snacs.network.masking import masks_of
from snacs.plans import Plan
from snacs.values import BoolArray

Target = str | os.PathLike[str]


@dataclass(frozen=True)
class Saved:
    """What was written. ``standalone``: :func:`snacs.load` needs nothing but the file."""

    path: Path
    bytes: int
    standalone: bool
    notes: tuple[str, ...] = ()


def save(
    model: nn.Module,
    path: Target,
    *,
    example: Any = None,
    forward: Forward | None = None,
    plan: Plan | None = None,
    accuracy: float | None = None,
    normalisation: Mapping[str, Any] | None = None,
    provenance: Mapping[str, Any] | None = None,
) -> Saved:
    """Write a network to one file that :func:`snacs.load` reads without the user's code.

    The file is a safetensors file. Pruned weights take the bytes of what is kept and one bit per
    possible connection, or less. The forward is traced by ``torch.fx`` in eval mode and stored as
    data over a fixed vocabulary of torch's own modules and functions; no code and no pickle.

    Parameters
    ----------
    model : nn.Module
        Masked, baked, compacted or dense; it is not changed. Masks are stored too.
    path : file, by convention ``*.snacs``; replaced in one step.
    example : a batch, optional
        The stored network is then run on it, and the file only counts as standalone if its
        outputs equal the network's bit for bit. The shape of one input is stored as well.
    plan : Plan, optional
        Adds the target, the preset, the options and a hash of the scores to the provenance.
    accuracy, normalisation, provenance : optional
        Stored as they are and given back by :func:`snacs.artifact.inspect`; plain JSON values.

    Returns
    -------
    Saved
        Where ``standalone`` is False, ``notes`` says why, a warning too, and ``snacs.load`` needs
        ``model=``, an instance of the same class.
    """
    masks = masks_of(model)
    plain = _plain_copy(model)
    facts = _provenance(plan, accuracy, normalisation, provenance)
    if example is not None:
        facts.setdefault("input_shape", list(next(tensors_of(example)).shape[1:]))
    notes: list[str] = []
    graph: dict[str, Any] | None = None
    constants: dict[str, Tensor] = {}
    try:
        graph, constants = _graph(plain)
        if example is not None:
            _compare(plain, graph, constants, example, forward)
    except NotStorable as error:
        graph = None
        notes.append(
            f"The architecture could not be stored, because it contains {error}. Load the file "
            "with snacs.load(path, model=…), giving an instance of the same class."
        )
        notes += _graph_modules(plain)
    tensors, tied = _tensors(plain)
    descriptions, parts = _pack(tensors | constants, masks)
    document = {
        "version": VERSION,
        "graph": graph,
        "modules": describe_modules(plain),
        "tensors": descriptions,
        "constants": sorted(constants),
        "trained": sorted(name for name, _ in plain.named_parameters(remove_duplicate=False)),
        "tied": tied,
        "masks": sorted(masks),
        "provenance": facts,
        "notes": notes,
    }
    size = container.write(Path(path), document, parts)
    for note in notes:
        warnings.warn(note, stacklevel=2)
    return Saved(Path(path), size, graph is not None, tuple(notes))


def save_state_dict(model: nn.Module, path: Target) -> int:
    """Write plain, dense weights as safetensors: masks baked in, nothing of snacs in the file.

    Returns the size in bytes. ``model.load_state_dict(safetensors.torch.load_file(path))`` reads
    it.
    """
    state = _plain_copy(model).state_dict()
    content = to_safetensors(
        {key: value.cpu().contiguous().clone() for key, value in state.items()}
    )
    write_file(Path(path), content)
    return len(content)


def _plain_copy(model: nn.Module) -> nn.Module:
    """A copy on the CPU in eval mode, without masks."""
    plain = plain_copy(model)
    for name, module in plain.named_modules():
        if hasattr(module, "parametrizations"):
            raise InputError(
                f"Module {name!r} carries parametrizations that are not masks of snacs. Take them "
                "off with torch.nn.utils.parametrize.remove_parametrizations before saving."
            )
    return plain.cpu()


def _graph(model: nn.Module) -> tuple[dict[str, Any], dict[str, Tensor]]:
    if isinstance(model, Restored):
        # Its forward is data already; tracing it would only write down the same.
        state = model.state_dict()
        names = [node["target"] for node in model.document["nodes"] if node["op"] == "get_attr"]
        return model.document, {n: model.tensor(n).detach() for n in names if n not in state}
    return describe_graph(model)


def _compare(
    model: nn.Module,
    graph: Mapping[str, Any],
    constants: Mapping[str, Tensor],
    example: Any,
    forward: Forward | None,
) -> None:
    state = {**model.state_dict(), **constants}
    trained = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    stored = assemble(graph, describe_modules(model), state, trained).eval()
    batch = move(example, model)
    with evaluating(model):
        wanted = list(tensors_of(run(model, batch, forward)))
        found = list(tensors_of(run(stored, batch, forward)))
    same = len(wanted) == len(found) and all(
        a.shape == b.shape and torch.equal(a.nan_to_num(), b.nan_to_num())
        for a, b in zip(wanted, found, strict=True)
    )
    if not same:
        raise NotStorable("a forward that does something else when torch.fx traces it")


def _graph_modules(model: nn.Module) -> list[str]:
    found = [name for name, module in model.named_modules() if isinstance(module, fx.GraphModule)]
    if not found:
        return []
    return [
        f"Compaction rewrote the forward of {', '.join(name or 'the network' for name in found)}; "
        "an instance of the original class will not fit without the same change."
    ]


def _tensors(model: nn.Module) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The state dict, each shared tensor once, and who shares with whom."""
    first: dict[tuple[Any, ...], str] = {}
    tensors, tied = {}, {}
    for name, tensor in model.state_dict().items():
        key = (tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype)
        if tensor.numel() and key in first:
            tied[name] = first[key]
        else:
            first.setdefault(key, name)
            tensors[name] = tensor.contiguous().clone()
    return tensors, tied


def _pack(
    tensors: Mapping[str, Tensor], masks: Mapping[str, BoolArray]
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    keeps = {f"{name}.weight" if name else "weight": keep for name, keep in masks.items()}
    descriptions, parts = {}, {}
    for name, tensor in tensors.items():
        packed = pack(name, tensor.contiguous(), keeps.get(name))
        descriptions[name] = packed.description
        parts.update(packed.parts)
    return descriptions, parts


def _provenance(
    plan: Plan | None,
    accuracy: float | None,
    normalisation: Mapping[str, Any] | None,
    more: Mapping[str, Any] | None,
) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "versions": {
            "snacs": version("snacs"),
            "torch": str(torch.__version__),
            "python": platform.python_version(),
        }
    }
    if plan is not None:
        digest = hashlib.sha256()
        for layer in plan.layers:
            digest.update(f"{layer.layer.name} {layer.scores.shape};".encode())
            digest.update(layer.scores.astype("<f4").tobytes())
        names = [name for name, preset in PRESETS.items() if preset == plan.config]
        facts |= {
            "target": plan.goal.target,
            "budget": plan.goal.budget,
            "preset": names[0] if names else "custom",
            "config": plan.config.as_dict(),
            "pruned": plan.pruned,
            "scores_sha256": digest.hexdigest(),
        }
    if accuracy is not None:
        facts["accuracy"] = float(accuracy)
    if normalisation is not None:
        facts["normalisation"] = dict(normalisation)
    facts |= dict(more or {})
    try:
        json.dumps(facts, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"The provenance must consist of plain JSON values: {error}. Convert tensors and "
            "arrays to numbers or lists first."
        ) from error
    return facts

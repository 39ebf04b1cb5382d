"""What there is to do for a pass in order: one task per masked layer, and what is left and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from snacs.errors import InputError
from snacs.network.masking import masks_of, original_of, spread
from snacs.network.reasons import LAST
from snacs.values import BoolArray, Layer, Structure, Sum

# A Gram matrix of this many columns takes 0.5 GB; wider layers (a classifier behind a large
# Flatten) are left and listed.
WIDEST = 8192


@dataclass(frozen=True, eq=False)
class Task:
    """One layer to solve: its mask, the norm that can carry its offset, its residual sum.

    ``norm`` is the name of the carrier. ``rectified``: what it is solved for (its sum, else its own
    output) is read by a ReLU alone.
    """

    name: str
    module: nn.Module
    keep: BoolArray
    carrier: _BatchNorm | None
    sum: Sum | None
    norm: str | None = None
    rectified: bool = False


def find_tasks(
    model: nn.Module, dense: nn.Module, structure: Structure, *, last: bool = False
) -> tuple[dict[str, Task], list[str]]:
    """What to solve, in order of the forward pass, and what not and why.

    With ``last``, the final classifier is solved as well, though it is not pruned, so that it reads
    the features as they are now. Not if somebody asked for it to be left alone.
    """
    masks, notes = masks_of(model), []
    known = {layer.name: layer for layer in structure}
    chosen: dict[str, BoolArray] = {}
    for name in sorted(masks, key=lambda name: [*known, *masks].index(name)):
        module = model.get_submodule(name)
        weight = original_of(module)
        _check_twin(dense, name, weight)
        if name not in known:
            notes.append(f"{name}: not part of the given structure.")
        elif (reason := why_not(known[name])) is not None:
            notes.append(f"{name}: {reason}.")
        elif not masks[name].any():
            notes.append(f"{name}: no connection is left.")
        else:
            mask = torch.from_numpy(masks[name])
            chosen[name] = (
                spread(mask, weight).expand(weight.shape).reshape(len(weight), -1).numpy()
            )
    for layer in structure:
        if (
            last
            and layer.kept_because == LAST
            and layer.name not in masks
            and why_not(layer) is None
        ):
            weight = original_of(model.get_submodule(layer.name))
            _check_twin(dense, layer.name, weight)
            chosen[layer.name] = np.ones((len(weight), weight[0].numel()), dtype=bool)
    sums = _sums(model, chosen, structure)
    tasks = {}
    for name, keep in chosen.items():
        (norm, carrier), sum_ = _carrier(model, name, structure), sums.get(name)
        tasks[name] = Task(
            name=name,
            module=model.get_submodule(name),
            keep=np.ascontiguousarray(keep),
            carrier=carrier,
            sum=sum_,
            norm=norm,
            rectified=_rectified(name, carrier, sum_, structure),
        )
    return tasks, notes


def _rectified(
    name: str, carrier: _BatchNorm | None, sum_: Sum | None, structure: Structure
) -> bool:
    if sum_ is not None:
        return sum_.rectified
    normed = any(feed.source == name for norm in structure.norms for feed in norm.feeds)
    # Behind a norm whose scale is not known, the ReLU's zero is not known either.
    return name in structure.rectified and (carrier is not None or not normed)


def why_not(layer: Layer) -> str | None:
    """Why a layer cannot be treated in order; None if it can."""
    if layer.calls > 1:
        # Each call sees other inputs; one solution for the first would spoil the others.
        return f"called {layer.calls} times per pass"
    columns = layer.c_in * layer.kernel
    return f"{columns} columns, more than {WIDEST}" if columns > WIDEST else None


def _check_twin(dense: nn.Module, name: str, weight: Tensor) -> None:
    try:
        shape = tuple(original_of(dense.get_submodule(name)).shape)
    except AttributeError:
        raise InputError(
            f"The dense network has no layer {name!r}. Pass the network that was pruned, unpruned."
        ) from None
    if shape != tuple(weight.shape):
        raise InputError(
            f"Layer {name!r} has a weight of shape {tuple(weight.shape)} here and {shape} in the "
            "dense network. Pass the network that was pruned, unpruned."
        )


def _sums(
    model: nn.Module, chosen: Mapping[str, BoolArray], structure: Structure
) -> dict[str, Sum]:
    """The sum at which a layer is solved. If both operands are layers, the later one makes up."""
    order = {layer.name: index for index, layer in enumerate(structure)}
    by_call: dict[int, Sum] = {}
    for found in structure.sums:
        norm = None if found.norm is None else model.get_submodule(found.norm)
        if found.layer not in chosen or not (norm is None or isinstance(norm, _BatchNorm)):
            continue
        best = by_call.get(found.call)
        if best is None or order[best.layer] < order[found.layer]:
            by_call[found.call] = found
    first: dict[str, Sum] = {}
    for call in sorted(by_call):
        first.setdefault(by_call[call].layer, by_call[call])
    return first


def _carrier(
    model: nn.Module, name: str, structure: Structure
) -> tuple[str, _BatchNorm] | tuple[None, None]:
    """The BatchNorm that reads this layer alone: its running mean can hold an offset.

    That is exact in eval mode, and in train mode BatchNorm does not see offsets at all.
    """
    readers = [n for n in structure.norms if any(feed.source == name for feed in n.feeds)]
    if len(readers) != 1 or any(feed.source != name for feed in readers[0].feeds):
        return None, None
    feeds, channels = readers[0].feeds, structure[name].c_out
    whole = len(feeds) == 1 and feeds[0].first == feeds[0].start == 0
    norm = model.get_submodule(readers[0].name)
    if not whole or readers[0].channels != channels or not isinstance(norm, _BatchNorm):
        return None, None
    return (readers[0].name, norm) if norm.track_running_stats else (None, None)

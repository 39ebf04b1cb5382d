"""Making modules physically smaller: convolutions, linear layers, BatchNorm and PReLU."""

from __future__ import annotations

import copy
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from snacs.errors import InputError
from snacs.network.compaction.deciding import Streams
from snacs.network.compaction.probing import Probe, alive_of, spread_groups
from snacs.network.masking import bake_, check_network
from snacs.values import BoolArray, FloatArray, IntArray


def plain_copy(model: nn.Module) -> nn.Module:
    """A copy in eval mode with its masks baked in; the network itself stays as it is."""
    check_network(model)
    try:
        plain = copy.deepcopy(model)
    except Exception as error:
        raise InputError(
            f"The network cannot be copied ({type(error).__name__}: {error}), and this works on a "
            "copy. Remove attributes that copy.deepcopy does not take, such as locks or tensors "
            "with a history."
        ) from error
    bake_(plain)
    return plain.eval()


@dataclass(frozen=True, eq=False)
class Cut:
    """What stays of each module, and the constants that biases take over.

    ``rows`` are (c_out,) filters and ``columns`` (channels,) inputs of layers, ``norms`` the
    (channels,) of norms, ``constants`` the values of removed input channels that are still read.
    """

    rows: dict[str, BoolArray]
    columns: dict[str, BoolArray]
    norms: dict[str, BoolArray]
    constants: dict[str, FloatArray]


def plan_cut(model: nn.Module, streams: Streams, gone: BoolArray, found: Probe) -> Cut:
    """Turn streams that go into rows and columns that stay."""

    def stays(numbers: IntArray) -> BoolArray:
        kept: BoolArray = (numbers < 0) | ~gone[numbers]
        return kept

    rows = {name: stays(streams.rows[name]) for name in streams.columns}
    columns = {name: stays(numbers) for name, numbers in streams.columns.items()}
    constants = {}
    for name, kept in columns.items():
        values = found.values.get(name)
        if values is None or kept.all():
            continue
        module = model.get_submodule(name)
        alive = spread_groups(alive_of(module), int(getattr(module, "groups", 1)))
        read = alive[rows[name]].any(axis=0) & ~kept & ~np.isnan(values)
        if values[read].any():
            constants[name] = np.where(read, values, 0.0)
    norms = {name: stays(numbers) for name, numbers in streams.norms.items()}
    return Cut(rows=rows, columns=columns, norms=norms, constants=constants)


def cut_(model: nn.Module, cut: Cut) -> None:
    """Slice the modules of ``model`` in place; parameters become new, smaller objects."""
    with torch.no_grad():
        for name in cut.rows:
            module = model.get_submodule(name)
            if name in cut.constants:
                _take_over_(module, cut.constants[name])
            if not (cut.rows[name].all() and cut.columns[name].all()):
                _cut_layer_(module, cut.rows[name], cut.columns[name])
        for name, kept in cut.norms.items():
            if not kept.all():
                _cut_norm_(model.get_submodule(name), kept)


def _take_over_(module: nn.Module, constants: FloatArray) -> None:
    """Add what constant input channels contribute to the bias, made anew if there is none."""
    weight = _tensor(module, "weight")
    value = torch.from_numpy(constants).to(weight.device)
    shift = (
        weight.double().flatten(2).sum(2) @ value if weight.ndim > 2 else weight.double() @ value
    )
    bias = module._parameters.get("bias")
    old = torch.zeros_like(shift) if bias is None else bias.double()
    trained = weight.requires_grad if bias is None else bias.requires_grad
    module.bias = nn.Parameter((old + shift).to(weight.dtype), requires_grad=trained)


def _cut_layer_(module: nn.Module, rows: BoolArray, columns: BoolArray) -> None:
    groups = int(getattr(module, "groups", 1))
    weight = _tensor(module, "weight")
    kept = _index(rows, weight)
    # Whole groups go, so what is left of a group keeps all its columns.
    smaller = weight[kept] if groups > 1 else weight[kept][:, _index(columns, weight)]
    _replace_(module, "weight", smaller)
    if module._parameters.get("bias") is not None:
        _replace_(module, "bias", _tensor(module, "bias")[kept])
    c_out, c_in = int(rows.sum()), int(columns.sum())
    sizes = {"out_features": c_out, "in_features": c_in}
    if not isinstance(module, nn.Linear):
        width = len(columns) // groups
        sizes = {"out_channels": c_out, "in_channels": c_in, "groups": groups}
        if groups > 1:
            sizes["groups"] = c_in // width
    for name, size in sizes.items():
        setattr(module, name, size)


def _cut_norm_(module: nn.Module, kept: BoolArray) -> None:
    for name in ("weight", "bias"):
        if module._parameters.get(name) is not None:
            tensor = _tensor(module, name)
            _replace_(module, name, tensor[_index(kept, tensor)])
    for name in ("running_mean", "running_var"):
        if module._buffers.get(name) is not None:
            tensor = _tensor(module, name)
            module._buffers[name] = tensor[_index(kept, tensor)].clone()
    size = "num_parameters" if isinstance(module, nn.PReLU) else "num_features"
    setattr(module, size, int(kept.sum()))


def _tensor(module: nn.Module, name: str) -> Tensor:
    found: Tensor = getattr(module, name)
    return found


def _index(kept: BoolArray, like: Tensor) -> Tensor:
    return torch.from_numpy(np.flatnonzero(kept)).to(like.device)


def _replace_(module: nn.Module, name: str, value: Tensor) -> None:
    old = module._parameters[name]
    module._parameters[name] = nn.Parameter(
        value.detach().clone(), requires_grad=old is not None and old.requires_grad
    )

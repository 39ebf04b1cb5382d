"""Folding BatchNorm into the convolution or linear layer before it."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from snacs.network.batches import Forward, evaluating, run, tensors_of
from snacs.network.compaction.checking import Checker
from snacs.network.seen import channel_dim, kind_of


def fold_batchnorm(
    model: nn.Module, batch: Any, checker: Checker, *, forward: Forward | None = None
) -> tuple[nn.Module, list[str], list[str]]:
    """A network without the BatchNorms that read a layer's output and nothing else.

    They become ``nn.Identity``, so that names and places of all other modules stay.

    Returns
    -------
    model, the BatchNorms that are gone, and why others stayed
    """
    pairs, notes = _pairs(model, batch, forward)
    whole = copy.deepcopy(model)
    for norm, layer in pairs.items():
        _fold_(whole, layer, norm)
    if checker.fails(whole, rounded=True) is None:
        return whole, list(pairs), notes
    # Something else reads a layer's raw output: find out where, one by one.
    folded: list[str] = []
    for norm, layer in pairs.items():
        candidate = copy.deepcopy(model)
        _fold_(candidate, layer, norm)
        reason = checker.fails(candidate, rounded=True)
        if reason is None:
            model = candidate
            folded.append(norm)
        else:
            notes.append(f"{norm!r} was not folded into {layer!r}: {reason}.")
    return model, folded, notes


def _pairs(
    model: nn.Module, batch: Any, forward: Forward | None
) -> tuple[dict[str, str], list[str]]:
    """Layer by BatchNorm, where the norm reads the very tensor that the layer returned."""
    made: dict[int, tuple[Tensor, str, int]] = {}
    read: dict[str, list[str | None]] = {}
    calls: dict[str, int] = {}
    handles = []

    def made_by(name: str, kind: str) -> Any:
        def hook(module: nn.Module, args: Any, output: Any) -> None:  # noqa: ARG001
            calls[name] = calls.get(name, 0) + 1
            if isinstance(output, Tensor):
                made[id(output)] = (output, name, channel_dim(kind, output.ndim))

        return hook

    def read_by(name: str) -> Any:
        def hook(module: nn.Module, args: Any, kwargs: Any) -> None:  # noqa: ARG001
            data = next(tensors_of([args, kwargs]), None)
            found = made.get(id(data))
            layer = found[1] if found and found[2] == 1 else None
            read.setdefault(name, []).append(layer)

        return hook

    for name, module in model.named_modules():
        kind = kind_of(module)
        if kind:
            handles.append(module.register_forward_hook(made_by(name, kind)))
        elif isinstance(module, _BatchNorm):
            handles.append(module.register_forward_pre_hook(read_by(name), with_kwargs=True))
    try:
        with evaluating(model):
            run(model, batch, forward)
    finally:
        for handle in handles:
            handle.remove()
    return _sort_out(model, read, calls)


def _sort_out(
    model: nn.Module, read: dict[str, list[str | None]], calls: dict[str, int]
) -> tuple[dict[str, str], list[str]]:
    pairs: dict[str, str] = {}
    notes = []
    for norm, sources in read.items():
        layer = sources[0]
        statistics = getattr(model.get_submodule(norm), "running_var", None)
        if layer is None:
            notes.append(f"{norm!r} was not folded: it does not follow a layer directly.")
        elif len(sources) > 1 or calls[layer] > 1:
            notes.append(f"{norm!r} was not folded: it, or {layer!r} before it, is called twice.")
        elif statistics is None:
            notes.append(f"{norm!r} was not folded: it has no running statistics.")
        elif type(getattr(model.get_submodule(layer), "weight", None)) is not nn.Parameter:
            notes.append(f"{norm!r} was not folded: the weight of {layer!r} is parametrized.")
        else:
            pairs[norm] = layer
    return pairs, notes


def _fold_(model: nn.Module, layer: str, norm: str) -> None:
    """W ← W·γ/√(σ² + ε), b ← (b − μ)·γ/√(σ² + ε) + β, computed in double precision."""
    module, batchnorm = model.get_submodule(layer), model.get_submodule(norm)
    weight: Tensor = module.weight  # type: ignore[assignment]
    mean, variance = (
        t.double() for t in (batchnorm.running_mean, batchnorm.running_var) if isinstance(t, Tensor)
    )
    scale = 1 / torch.sqrt(variance + float(batchnorm.eps))  # type: ignore[arg-type]
    if isinstance(batchnorm.weight, Tensor):
        scale = scale * batchnorm.weight.double()
    bias = module._parameters.get("bias")
    shift = (-mean if bias is None else bias.double() - mean) * scale
    if isinstance(batchnorm.bias, Tensor):
        shift = shift + batchnorm.bias.double()
    with torch.no_grad():
        scaled = weight.double() * scale.reshape(-1, *(1 for _ in range(weight.ndim - 1)))
        module.weight = nn.Parameter(scaled.to(weight.dtype), requires_grad=weight.requires_grad)
        module.bias = nn.Parameter(shift.to(weight.dtype), requires_grad=weight.requires_grad)
    parent, _, child = norm.rpartition(".")
    setattr(model.get_submodule(parent), child, nn.Identity())

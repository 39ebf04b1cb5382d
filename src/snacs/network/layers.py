"""What can be pruned in a network, what cannot and why, and who reads whose filters."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from snacs.errors import InputError, closest
from snacs.network.batches import Forward, map_tensors, size_of
from snacs.network.reasons import (
    Ignore,
    ignored_layers,
    left_alone,
    reasons_to_keep,
)
from snacs.network.trace import Seen, trace, weight_shape
from snacs.values import FloatArray, Layer, Structure

__all__ = [
    "Ignore",
    "bias_of",
    "find_structure",
    "module_of",
    "weight_of",
]


def find_structure(
    model: nn.Module,
    batch: object,
    *,
    forward: Forward | None = None,
    ignore: Sequence[Ignore] = (),
    keep_first: bool = True,
    keep_last: bool = True,
) -> Structure:
    """Run one small batch and say what the network is made of.

    Parameters
    ----------
    model : nn.Module
        Any network; it is not changed. Masks of snacs may be on it.
    batch : (x, y), x, dict, …
        A batch as in :mod:`snacs.network.batches`; its first two images are used.
    forward : function of model and batch, optional
        How to call the network, where ``model(x)`` is not it.
    ignore : names, patterns such as ``"layer1.*"``, compiled regular expressions, or types
        Layers to keep as they are. The name or type of a container means everything in it.
    keep_first, keep_last : bool
        Keep the layers that read the network's input, and those that make its output.

    Returns
    -------
    Structure
        All convolution and linear layers that were called, in order, each with the reason why it
        is kept, if it is; norms, residual sums, and what was left alone.
    """
    if isinstance(ignore, str | type | re.Pattern):
        ignore = (ignore,)
    modules = dict(model.named_modules())
    ignored = ignored_layers(modules, ignore)
    seen = trace(model, _small(batch), forward=forward)
    reasons = reasons_to_keep(modules, seen, ignored, keep_first=keep_first, keep_last=keep_last)
    for each in seen.layers:
        _check_finite(each)
    structure = Structure(
        layers=tuple(_layer(each, seen.images, reasons[each.name]) for each in seen.layers),
        norms=seen.norms,
        sums=seen.sums,
        left_alone=tuple(left_alone(modules, seen)),
        outputs=seen.outputs,
        rectified=seen.rectified,
    )
    if not structure.prunable:
        rows = [f"{x.name} ({x.kind}): {x.kept_because}" for x in structure.layers]
        rows += [f"{x.name} ({x.kind}): {x.reason}" for x in structure.left_alone]
        raise InputError(
            "There is nothing to prune in this network; it needs a convolution or linear layer "
            "between its first and its last one. "
            + ("Found: " + "; ".join(rows) if rows else "It has no layers with weights at all.")
        )
    return structure


def module_of(model: nn.Module, layer: Layer | str) -> nn.Module:
    """The module behind a layer, with an error that names close matches."""
    name = layer if isinstance(layer, str) else layer.name
    modules: dict[str, nn.Module] = dict(model.named_modules())
    if name not in modules:
        raise InputError(f"The network has no module {name!r}.{closest(name, modules, alike=0.4)}")
    return modules[name]


def weight_of(module: nn.Module, layer: Layer) -> FloatArray:
    """The weight that acts, masks included: float32 of shape (c_out, c_in, kernel)."""
    with torch.no_grad():
        weight = module.weight
        if not isinstance(weight, Tensor) or weight.numel() != layer.weights:
            shape = tuple(weight.shape) if isinstance(weight, Tensor) else type(weight).__name__
            raise InputError(
                f"Layer {layer.name!r} should have {layer.weights} weights, "
                f"({layer.c_out}, {layer.c_in}, {layer.kernel}). The module has {shape}: it is not "
                "the network that the structure was read from."
            )
        plain = weight.detach().to("cpu", torch.float32)
    return plain.reshape(layer.c_out, layer.c_in, layer.kernel).contiguous().numpy().copy()


def bias_of(module: nn.Module) -> FloatArray | None:
    """The (c_out,) float32 bias, None if there is none."""
    bias = getattr(module, "bias", None)
    if not isinstance(bias, Tensor):
        return None
    found: FloatArray = bias.detach().to("cpu", torch.float32).numpy().copy()
    return found


def _small(batch: object) -> object:
    size = size_of(batch)
    if size < 1:
        raise InputError("The batch holds no images; give at least one.")
    return map_tensors(batch, lambda t: t[:2] if t.ndim and t.shape[0] == size else t)


def _layer(seen: Seen, images: int, reason: str | None) -> Layer:
    module, kernel = seen.module, seen.kernel
    width = math.prod(weight_shape(module)[1:])
    return Layer(
        name=seen.name,
        kind=seen.kind,
        c_out=seen.c_out,
        c_in=width // kernel,
        kernel=kernel,
        groups=int(getattr(module, "groups", 1)),
        positions=max(1, seen.outputs // images),
        calls=len(seen.columns),
        has_bias=getattr(module, "bias", None) is not None,
        feeds=seen.feeds,
        consumers=tuple(seen.consumers),
        kept_because=reason,
    )


def _check_finite(seen: Seen) -> None:
    for part in ("weight", "bias"):
        value = getattr(seen.module, part, None)
        if isinstance(value, Tensor) and not bool(torch.isfinite(value.detach()).all()):
            bad = int(np.sum(~torch.isfinite(value.detach().float().cpu()).numpy()))
            raise InputError(
                f"Layer {seen.name!r} has {bad} NaN or infinite numbers in its {part}. Load "
                "weights of a trained network, or train it again; such a layer cannot be scored."
            )

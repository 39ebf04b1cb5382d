"""Nodes of a traced network as steps: one short reader per kind of module or function."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import fx, nn

from snacs.runtime.reading import NotOurs, Reading, argument_of, array_of, name_of, pair_of
from snacs.runtime.steps import Conv, Copy, Mean, Pair, Pool, Step, Value

Reader = Callable[[Reading, fx.Node, nn.Module | None], list[Step]]


def read_node(reading: Reading, node: fx.Node) -> list[Step]:
    """The steps of one node; none if it only names something anew."""
    module = None
    reader: Reader | None = None
    if node.op == "call_module":
        module = reading.module.get_submodule(str(node.target))
        reader = _MODULES.get(type(module))
        name = type(module).__name__
    else:
        name = str(getattr(node.target, "__name__", node.target))
        table: dict[Any, Reader] = _METHODS if node.op == "call_method" else _FUNCTIONS
        reader = table.get(node.target)
    if reader is None:
        raise NotOurs(f"there is no kernel for {name}")
    if node not in reading.shapes:
        raise NotOurs(f"the result of {name} is no float32 tensor")
    return reader(reading, node, module)


def _conv(reading: Reading, node: fx.Node, module: nn.Module | None) -> list[Step]:
    if not isinstance(module, nn.Conv2d):
        raise NotOurs("it is no 2-d convolution")
    name = str(node.target)
    if name in reading.dense:
        raise NotOurs("torch's dense convolution was measured to be faster")
    if module.padding_mode != "zeros":
        raise NotOurs(f"its padding is {module.padding_mode}")
    dilation = pair_of(module.dilation)
    if module.padding == "same":
        spans = [d * (k - 1) for d, k in zip(dilation, module.kernel_size, strict=True)]
        if any(span % 2 for span in spans):
            raise NotOurs("its padding differs from side to side")
        padding: Pair = (spans[0] // 2, spans[1] // 2)
    else:
        padding = (0, 0) if module.padding == "valid" else pair_of(module.padding)
    x = reading.image(node.args[0])
    bias = torch.zeros(module.out_channels) if module.bias is None else module.bias
    step = Conv(
        layer=name,
        x=x,
        out=reading.place(node),
        weight=array_of(module.weight),
        bias=array_of(bias),
        stride=pair_of(module.stride),
        padding=padding,
        dilation=dilation,
        groups=module.groups,
    )
    return [step]


def _linear(reading: Reading, node: fx.Node, module: nn.Module | None) -> list[Step]:
    if not isinstance(module, nn.Linear):
        raise NotOurs("it is no linear layer")
    name = str(node.target)
    if name in reading.dense:
        raise NotOurs("torch's dense layer was measured to be faster")
    source = node.args[0]
    if not isinstance(source, fx.Node) or source not in reading.views:
        raise NotOurs("its input is no batch of float32 vectors")
    value, shape = reading.views[source]
    if len(shape) != 1:
        raise NotOurs("its input is no vector per image")
    # Behind a Flatten a linear layer is a convolution as large as the image.
    weight = array_of(module.weight).reshape(-1, value.channels, value.height, value.width)
    bias = torch.zeros(module.out_features) if module.bias is None else module.bias
    return [Conv(layer=name, x=value, out=reading.place(node), weight=weight, bias=array_of(bias))]


def _batchnorm(reading: Reading, node: fx.Node, module: nn.Module | None) -> list[Step]:
    if not isinstance(module, nn.BatchNorm2d) or module.running_mean is None:
        raise NotOurs("it normalises by the batch")
    x = reading.image(node.args[0])
    mean, variance = array_of(module.running_mean), array_of(module.running_var)  # type: ignore[arg-type]
    scale = 1 / np.sqrt(variance.astype(np.float64) + module.eps)
    if module.affine:
        scale *= array_of(module.weight)
    shift = -mean * scale
    if module.affine:
        shift += array_of(module.bias)
    step = Copy(
        layer=str(node.target),
        x=x,
        out=reading.place(node),
        scale=scale.astype(np.float32),
        shift=shift.astype(np.float32),
    )
    return [step]


def _clip(low: float, high: float) -> Reader:
    def read(reading: Reading, node: fx.Node, module: nn.Module | None) -> list[Step]:
        bounds = low, high
        if isinstance(module, nn.Hardtanh) and not isinstance(module, nn.ReLU6):
            bounds = float(module.min_val), float(module.max_val)
        source = node.args[0]
        if not isinstance(source, fx.Node) or source not in reading.views:
            raise NotOurs("its input is no batch of float32 images")
        value, shape = reading.views[source]
        out = Value(node.name, value.channels, value.height, value.width)
        reading.views[node] = (out, shape)
        return [Copy(layer=name_of(node), x=value, out=out, low=bounds[0], high=bounds[1])]

    return read


def _add(reading: Reading, node: fx.Node, module: nn.Module | None) -> list[Step]:  # noqa: ARG001
    if len(node.args) != 2 or node.kwargs.get("alpha", 1) != 1:
        raise NotOurs("it is no plain sum of two tensors")
    x, other = (reading.image(argument) for argument in node.args)
    sizes = {(value.channels, value.height, value.width) for value in (x, other)}
    if len(sizes) > 1:
        raise NotOurs("it adds tensors of different shapes")
    return [Copy(layer=name_of(node), x=x, out=reading.place(node), other=other)]


def _alias(reading: Reading, node: fx.Node, module: nn.Module | None) -> list[Step]:  # noqa: ARG001
    """Something that changes no number and no order: another name, perhaps another shape."""
    source = node.args[0]
    if not isinstance(source, fx.Node) or source not in reading.views:
        raise NotOurs("its input is no batch of float32 images")
    value, before = reading.views[source]
    shape = reading.shapes[node]
    flat = (math.prod(before),)
    if shape[0] != reading.images or shape[1:] not in (before, flat):
        raise NotOurs("it gives the tensor a new shape")
    reading.views[node] = (value, shape[1:])
    return []


def _pool(average: bool) -> Reader:
    def read(reading: Reading, node: fx.Node, module: nn.Module | None) -> list[Step]:
        names = ("kernel_size", "stride", "padding", "ceil_mode")
        if module is not None:
            found = {name: getattr(module, name) for name in names}
            found["dilation"] = getattr(module, "dilation", 1)
            found["count_include_pad"] = getattr(module, "count_include_pad", True)
            found["divisor_override"] = getattr(module, "divisor_override", None)
            found["return_indices"] = getattr(module, "return_indices", False)
        else:
            order = ("kernel_size", "stride", "padding")
            found = {name: argument_of(node, at + 1, name) for at, name in enumerate(order)}
            rest = {name: value for name, value in node.kwargs.items() if name not in order}
            if len(node.args) > 4 or any(rest.values()) or "count_include_pad" in rest:
                raise NotOurs("it pools in an unusual way")
        if found.get("ceil_mode") or found.get("divisor_override") or found.get("return_indices"):
            raise NotOurs("it pools in an unusual way")
        if pair_of(found.get("dilation", 1)) != (1, 1):
            raise NotOurs("its windows are dilated")
        kernel = pair_of(found["kernel_size"])
        step = Pool(
            layer=name_of(node),
            x=reading.image(node.args[0]),
            out=reading.place(node),
            kernel=kernel,
            stride=pair_of(found["stride"]) if found["stride"] else kernel,
            padding=pair_of(found["padding"] or 0),
            average=average,
            count_padding=bool(found.get("count_include_pad", True)),
        )
        return [step]

    return read


def _adaptive(reading: Reading, node: fx.Node, module: nn.Module | None) -> list[Step]:
    size = module.output_size if module is not None else argument_of(node, 1, "output_size")
    if pair_of(size) != (1, 1):
        raise NotOurs("it pools to more than one pixel")
    x = reading.image(node.args[0])
    return [Mean(layer=name_of(node), x=x, out=reading.place(node))]


def _mean(reading: Reading, node: fx.Node, module: nn.Module | None) -> list[Step]:  # noqa: ARG001
    axes = argument_of(node, 1, "dim")
    axes = tuple(axes) if isinstance(axes, tuple | list) else (axes,)
    x = reading.image(node.args[0])
    pixels = {axis % 4 for axis in axes if axis is not None} == {2, 3}
    if not pixels or len(reading.shape_of(node.args[0])) != 3:
        raise NotOurs("it is no mean over all pixels")
    return [Mean(layer=name_of(node), x=x, out=reading.place(node))]


def _index(reading: Reading, node: fx.Node, module: nn.Module | None) -> list[Step]:  # noqa: ARG001
    """``x[:, :, ::2, ::2]``: every second pixel."""
    x = reading.image(node.args[0])
    index: Any = node.args[1]
    if not isinstance(index, tuple) or len(index) != 4:
        raise NotOurs("it takes out a part")
    everything = all(
        isinstance(part, slice) and part.start is None and part.stop is None for part in index
    )
    steps = [part.step or 1 for part in index] if everything else []
    if not everything or steps[:2] != [1, 1] or steps[2] != steps[3]:
        raise NotOurs("it takes out a part")
    return [Copy(layer=name_of(node), x=x, out=reading.place(node), stride=int(steps[2]))]


def _pad(reading: Reading, node: fx.Node, module: nn.Module | None) -> list[Step]:  # noqa: ARG001
    """Zero channels before and behind."""
    x, pads = reading.image(node.args[0]), argument_of(node, 1, "pad")
    value = argument_of(node, 3, "value")
    if argument_of(node, 2, "mode", "constant") != "constant" or value not in (None, 0, 0.0):
        raise NotOurs("it pads with something else than zeros")
    sizes = list(pads)
    if len(sizes) != 6 or any(sizes[:4]) or min(sizes[4:]) < 0:
        raise NotOurs("it pads along other axes than the channels")
    return [Copy(layer=name_of(node), x=x, out=reading.place(node), first=int(sizes[4]))]


def _cat(reading: Reading, node: fx.Node, module: nn.Module | None) -> list[Step]:  # noqa: ARG001
    parts, axis = node.args[0], argument_of(node, 1, "dim", 0)
    if not isinstance(parts, tuple | list) or axis not in (1, -3):
        raise NotOurs("it joins along another axis than the channels")
    values = [reading.image(part) for part in parts]
    out = reading.place(node)
    if len(reading.views[node][1]) != 3:
        raise NotOurs("it joins vectors")
    firsts = np.cumsum([0, *(value.channels for value in values)])
    return [
        Copy(layer=name_of(node), x=value, out=out, first=int(first), pad=False)
        for value, first in zip(values, firsts, strict=False)
    ]


_relu, _relu6 = _clip(0.0, math.inf), _clip(0.0, 6.0)

_MODULES: dict[type, Reader] = {
    nn.Conv2d: _conv,
    nn.Linear: _linear,
    nn.BatchNorm2d: _batchnorm,
    nn.ReLU: _relu,
    nn.ReLU6: _relu6,
    nn.Hardtanh: _clip(-1.0, 1.0),
    nn.MaxPool2d: _pool(average=False),
    nn.AvgPool2d: _pool(average=True),
    nn.AdaptiveAvgPool2d: _adaptive,
    nn.Flatten: _alias,
    nn.Identity: _alias,
    nn.Dropout: _alias,
    nn.Dropout2d: _alias,
}
_FUNCTIONS: dict[Any, Reader] = {
    torch.relu: _relu,
    F.relu: _relu,
    F.relu6: _relu6,
    operator.add: _add,
    operator.iadd: _add,
    torch.add: _add,
    F.max_pool2d: _pool(average=False),
    torch.max_pool2d: _pool(average=False),
    F.avg_pool2d: _pool(average=True),
    F.adaptive_avg_pool2d: _adaptive,
    torch.mean: _mean,
    torch.flatten: _alias,
    torch.reshape: _alias,
    operator.getitem: _index,
    F.pad: _pad,
    torch.cat: _cat,
    torch.concat: _cat,
}
_METHODS: dict[Any, Reader] = {
    "relu": _relu,
    "relu_": _relu,
    "add": _add,
    "add_": _add,
    "mean": _mean,
    "flatten": _alias,
    "view": _alias,
    "reshape": _alias,
    "contiguous": _alias,
}

"""How each torch function hands sources on. What is not named here blends: unknown, never wrong."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from snacs.network.batches import map_tensors, tensors_of
from snacs.network.sources import (
    NOTHING,
    UNKNOWN,
    Origins,
    Tag,
    blend,
    compress,
    join,
    uniform,
)


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_PRODUCTS = _words("mul multiply imul rmul")
_ELEMENTWISE = _PRODUCTS | _words("""
    add sub subtract rsub div divide true_divide rdiv rtruediv neg negative abs pow rpow square
    sqrt rsqrt exp expm1 log log1p reciprocal sin cos sign tanh sigmoid erf lerp addcmul addcdiv
    iadd isub idiv itruediv radd rmul pos floor ceil round nan_to_num
    relu relu6 leaky_relu elu selu celu gelu silu mish hardtanh hardswish hardsigmoid softplus
    softsign tanhshrink softshrink hardshrink logsigmoid threshold prelu rrelu
    clamp clip clamp_min clamp_max maximum minimum max min where masked_fill fmax fmin
    dropout dropout1d dropout2d dropout3d alpha_dropout feature_alpha_dropout feature_dropout
    clone contiguous detach data real requires_grad alias copy type_as to float double half
    bfloat16 int long bool byte type cpu cuda gt lt ge le eq ne logical_not logical_and logical_or
    batch_norm instance_norm
    """)
_REDUCTIONS = _words(
    "mean sum amax amin max min std var norm vector_norm nanmean nansum logsumexp median"
)
_SPATIAL = _words(
    """
    max_pool avg_pool adaptive_max_pool adaptive_avg_pool lp_pool fractional_max_pool
    interpolate upsample
    """
)
_ALONG = _words("softmax log_softmax softmin cumsum normalize")
_SPREADING = _words("layer_norm group_norm rms_norm local_response_norm")
_WRITING = frozenset(
    f"__{name}__"
    for name in _words(
        "setitem iadd isub imul idiv itruediv ifloordiv ipow imod iand ior ixor ilshift irshift"
    )
)
_MOVEMENTS = _words("""
    view reshape flatten ravel unflatten permute transpose t T mT H mH movedim moveaxis swapaxes
    swapdims squeeze unsqueeze expand expand_as broadcast_to repeat tile repeat_interleave
    view_as reshape_as narrow select getitem index_select gather take_along_dim chunk split
    tensor_split split_with_sizes unsafe_chunk hsplit vsplit unbind cat concat concatenate stack
    hstack vstack dstack flip fliplr flipud roll rot90 pad constant_pad_nd pixel_shuffle
    pixel_unshuffle channel_shuffle native_channel_shuffle unfold diagonal tril triu setitem
    """)


@dataclass(frozen=True, eq=False)
class Call:
    """One torch function call, with what is known of the tensors it was given."""

    name: str
    func: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    tag_of: Callable[[Tensor], Tag | None]
    """None for constants."""
    constant: Callable[[Tensor], Origins]
    """UNKNOWN for a constant that is not 0 or may be trained away from 0."""
    trained: Callable[[Tensor], bool]

    @property
    def operands(self) -> list[Tensor]:
        return list(tensors_of([self.args, self.kwargs]))


def plain_name(func: Callable[..., Any]) -> str:
    """A function's name without in-place, dunder and overload marks."""
    name = str(getattr(func, "__name__", ""))
    if name == "__get__":
        name = str(getattr(getattr(func, "__self__", None), "__name__", ""))
    name = name.split(".")[0]
    return name.strip("_") if name.startswith("__") else name.removesuffix("_")


def is_in_place(func: Callable[..., Any], kwargs: dict[str, Any]) -> bool:
    """Whether the call writes into a tensor that it was given."""
    name = str(getattr(func, "__name__", "")).split(".")[0]
    marked = name.endswith("_") and not name.startswith("__")
    return (
        marked or name in _WRITING or bool(kwargs.get("inplace")) or kwargs.get("out") is not None
    )


def tags_of_result(call: Call, result: Any) -> list[Tag]:
    """One tag per tensor of ``result``, in order."""
    outputs = list(tensors_of(result))
    tags = None
    if call.kwargs.get("out") is None:
        tags = _by_rule(call, outputs)
    everything = NOTHING.union(*(t.everything() for t in map(call.tag_of, call.operands) if t))
    blended = blend(everything)
    if any(call.trained(operand) for operand in call.operands):
        blended |= {UNKNOWN}  # an embedding of the input, say, is no longer the input
    if tags is None or len(tags) != len(outputs):
        return [uniform(blended, output.ndim) for output in outputs]
    return [
        tag if tag is not None and tag.fits(output.shape) else uniform(blended, output.ndim)
        for tag, output in zip(tags, outputs, strict=True)
    ]


def _by_rule(call: Call, outputs: Sequence[Tensor]) -> Sequence[Tag | None] | None:
    if not outputs:
        return []
    if call.name in _MOVEMENTS:
        return moved(call)
    reduces = call.name in _REDUCTIONS and _is_reduction(call, outputs[0])
    tag: Tag | None = None
    if reduces:
        tag = _reduced(call, outputs[0])
    elif call.name in _ELEMENTWISE:
        tag = _elementwise(call)
    elif call.name in _ALONG:
        first = _first(call)
        tag = first if first and first.constant_along(_dims(call, first.labels.ndim)) else None
    elif call.name in _SPREADING:
        first = _first(call)
        tag = first.with_origins(blend(first.everything())) if first else None
    elif call.name.startswith(tuple(_SPATIAL)):
        tag = _spatial(call)
    if tag is None:
        return None
    if not _keeps_zero(call):
        tag = tag.with_origins(frozenset({UNKNOWN}))
    return [tag] * len(outputs)


def _first(call: Call) -> Tag | None:
    data = call.args[0] if call.args else call.kwargs.get("input")
    return call.tag_of(data) if isinstance(data, Tensor) else None


def _elementwise(call: Call) -> Tag | None:
    tags = [tag for tag in map(call.tag_of, call.operands) if tag is not None]
    joined = tags[0]
    for tag in tags[1:]:
        joined = join(joined, tag, product=call.name in _PRODUCTS)
    # A constant may be what gives the result its shape.
    ndim = max(operand.ndim for operand in call.operands)
    missing = ndim - joined.labels.ndim
    return Tag(joined.labels.reshape((1,) * missing + joined.labels.shape), joined.origins)


def _is_reduction(call: Call, output: Tensor) -> bool:
    """Max and min exist in both kinds: of one tensor along dimensions, or of two tensors."""
    return len([t for t in call.operands if t.ndim]) == 1 or output.ndim == 0


def _dims(call: Call, ndim: int) -> tuple[int, ...]:
    dim = call.kwargs.get("dim", call.kwargs.get("axis"))
    # norm, vector_norm and normalize have their order before the dimension.
    place = 2 if call.name in ("norm", "vector_norm", "normalize") else 1
    if dim is None and len(call.args) > place:
        dim = call.args[place]
    if dim is None and call.name == "normalize":
        dim = 1
    if isinstance(dim, int) and not isinstance(dim, bool):
        dim = (dim,)
    if not isinstance(dim, tuple | list) or not dim:
        return tuple(range(ndim))
    return tuple(int(d) % ndim for d in dim) if ndim else ()


def _reduced(call: Call, output: Tensor) -> Tag | None:
    tag = _first(call)
    if tag is None:
        return None
    dims = _dims(call, tag.labels.ndim)
    if not tag.constant_along(dims):
        return None
    if output.ndim == tag.labels.ndim:
        return tag
    return Tag(tag.labels.squeeze(dims), tag.origins)


def _spatial(call: Call) -> Tag | None:
    """Pooling and resizing work within a channel: on the last one, two or three dimensions."""
    tag = _first(call)
    if tag is None:
        return None
    ndim = tag.labels.ndim
    within = next((int(d) for d in "123" if f"{d}d" in call.name), ndim - 2)
    return tag if tag.constant_along(range(ndim - within, ndim)) else None


def _keeps_zero(call: Call) -> bool:
    """Try whether results are 0 where all followed operands are, whatever is trained later."""

    def replace(tensor: Tensor) -> Tensor:
        if call.tag_of(tensor) is not None:
            return torch.zeros_like(tensor)
        # A copy, because the function may write into it.
        return torch.ones_like(tensor) if call.trained(tensor) else tensor.clone()

    try:
        result = call.func(
            *map_tensors(list(call.args), replace), **map_tensors(call.kwargs, replace)
        )
        return not any(bool(tensor.any()) for tensor in list(tensors_of(result))[:1])
    except (RuntimeError, TypeError, ValueError):
        return False


def moved(call: Call) -> list[Tag] | None:
    """Run a function that only moves data on the labels themselves.

    Label 0 is what the function fills in by itself.
    """
    args, kwargs, fill = list(call.args), dict(call.kwargs), NOTHING
    if call.name == "pad":
        value = args[3] if len(args) > 3 else kwargs.pop("value", None)
        args = args[:3]
        fill = frozenset({UNKNOWN}) if value else NOTHING
    key: Any = 0 if args else next((k for k in ("input", "tensors", "self") if k in kwargs), None)
    if key is None or any(isinstance(arg, torch.dtype) for arg in args):
        return None
    origins: list[Origins] = [fill]
    holder: Any = args if args else kwargs
    holder[key] = map_tensors(holder[key], lambda t: _labels_of(call, t, origins))
    if call.name == "setitem":
        if isinstance(args[2], Tensor):
            args[2] = _labels_of(call, args[2], origins)
        else:
            origins[0] = frozenset({UNKNOWN}) if args[2] else NOTHING
            args[2] = 0.0
    others = args[1:2] if call.name == "setitem" else [args[1:], kwargs]
    by_index = NOTHING.union(
        *(tag.everything() for tag in map(call.tag_of, tensors_of(others)) if tag is not None)
    )
    try:
        result = call.func(*args, **kwargs)
    except (RuntimeError, TypeError, ValueError, NotImplementedError):
        return None
    result = args[0] if call.name == "setitem" else result
    return [_from_labels(t, origins, blend(by_index)) for t in tensors_of(result)]


def _labels_of(call: Call, tensor: Tensor, origins: list[Origins]) -> Tensor:
    tag = call.tag_of(tensor) or uniform(call.constant(tensor), tensor.ndim)
    labels = torch.from_numpy(tag.labels).double() + len(origins)
    origins.extend(tag.origins)
    return labels.to(tensor.device).expand(tensor.shape).clone()


def _from_labels(labels: Tensor, origins: Sequence[Origins], more: Origins) -> Tag:
    full = compress(labels.cpu().numpy().round())
    used, small = np.unique(full, return_inverse=True)
    return Tag(
        small.reshape(full.shape).astype(np.int64),
        tuple(origins[index] | more for index in used.tolist()),
    )

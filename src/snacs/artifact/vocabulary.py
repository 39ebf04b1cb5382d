"""Everything that a stored graph may name. What is not listed here is neither written nor read.

A file holds words; these tables say what the words mean. No word of a file is ever imported,
evaluated or looked up anywhere else.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


_CONV = "in_channels out_channels kernel_size stride padding dilation groups bias padding_mode"
_TRANSPOSED = (
    "in_channels out_channels kernel_size stride padding output_padding groups bias dilation "
    "padding_mode"
)
_NORM = "num_features eps momentum affine track_running_stats"
_MAX_POOL = "kernel_size stride padding dilation return_indices ceil_mode"

_FIELDS: dict[str, str] = {
    "Linear": "in_features out_features bias",
    "Conv1d Conv2d Conv3d": _CONV,
    "ConvTranspose1d ConvTranspose2d ConvTranspose3d": _TRANSPOSED,
    "BatchNorm1d BatchNorm2d BatchNorm3d": _NORM,
    "InstanceNorm1d InstanceNorm2d InstanceNorm3d": _NORM,
    "GroupNorm": "num_groups num_channels eps affine",
    "LayerNorm": "normalized_shape eps elementwise_affine bias",
    "RMSNorm": "normalized_shape eps elementwise_affine",
    "Embedding": "num_embeddings embedding_dim padding_idx",
    "PReLU": "num_parameters",
    "Identity Sigmoid Tanh LogSigmoid Softsign Tanhshrink": "",
    "ReLU ReLU6 SELU SiLU Mish Hardswish Hardsigmoid": "inplace",
    "LeakyReLU": "negative_slope inplace",
    "ELU CELU": "alpha inplace",
    "GELU": "approximate",
    "Hardtanh": "min_val max_val inplace",
    "Softplus": "beta threshold",
    "Softmax LogSoftmax": "dim",
    "Dropout Dropout1d Dropout2d Dropout3d AlphaDropout": "p inplace",
    "MaxPool1d MaxPool2d MaxPool3d": _MAX_POOL,
    "AvgPool1d": "kernel_size stride padding ceil_mode count_include_pad",
    "AvgPool2d AvgPool3d": (
        "kernel_size stride padding ceil_mode count_include_pad divisor_override"
    ),
    "AdaptiveAvgPool1d AdaptiveAvgPool2d AdaptiveAvgPool3d": "output_size",
    "AdaptiveMaxPool1d AdaptiveMaxPool2d AdaptiveMaxPool3d": "output_size return_indices",
    "Flatten": "start_dim end_dim",
    "Unflatten": "dim unflattened_size",
    "Upsample": "size scale_factor mode align_corners",
    "ZeroPad1d ZeroPad2d ZeroPad3d": "padding",
    "ReflectionPad1d ReflectionPad2d ReflectionPad3d": "padding",
    "ReplicationPad1d ReplicationPad2d ReplicationPad3d": "padding",
    "ConstantPad1d ConstantPad2d ConstantPad3d": "padding value",
    "PixelShuffle": "upscale_factor",
    "PixelUnshuffle": "downscale_factor",
    "ChannelShuffle": "groups",
}
MODULES: dict[str, tuple[type[nn.Module], tuple[str, ...]]] = {
    name: (getattr(nn, name), _words(fields))
    for names, fields in _FIELDS.items()
    for name in _words(names)
}
"""Modules of torch by name, with the arguments that make an equal one."""

_TORCH = """
    abs add addmm amax amin bmm broadcast_to cat chunk clamp concat conv1d conv2d conv3d cos div exp
    expand_copy flatten flip floor log matmul maximum mean minimum mul narrow neg ones_like permute
    pow prod relu reshape roll rsqrt sigmoid sin softmax split sqrt square squeeze stack std sub sum
    tanh transpose unbind unflatten unsqueeze var where zeros_like
    """
_FUNCTIONAL = """
    relu relu_ relu6 leaky_relu elu selu celu gelu silu mish hardtanh hardswish hardsigmoid softplus
    softsign logsigmoid sigmoid tanh softmax log_softmax prelu
    max_pool1d max_pool2d max_pool3d avg_pool1d avg_pool2d avg_pool3d
    adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d
    adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d
    pad interpolate dropout dropout1d dropout2d dropout3d batch_norm layer_norm group_norm
    instance_norm normalize linear conv1d conv2d conv3d pixel_shuffle pixel_unshuffle unfold
    scaled_dot_product_attention
    """
_OPERATORS = """
    add sub mul truediv floordiv mod pow matmul neg getitem iadd isub imul itruediv eq ne lt le gt
    ge
    """
FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{f"operator.{name}": getattr(operator, name) for name in _words(_OPERATORS)},
    **{f"torch.{name}": getattr(torch, name) for name in _words(_TORCH) if hasattr(torch, name)},
    **{f"functional.{name}": getattr(F, name) for name in _words(_FUNCTIONAL)},
}
"""Functions by name; ``getattr`` is not among them, see :data:`ATTRIBUTES`."""

METHODS = frozenset(
    _words("""
    abs add add_ amax amin bmm chunk clamp clamp_ clone contiguous detach dim div div_ double exp
    expand expand_as flatten flip float half log matmul max mean min mul mul_ narrow ndimension neg
    numel permute pow relu relu_ repeat reshape roll rsqrt sigmoid size softmax split sqrt square
    squeeze std sub sub_ sum t tanh transpose type_as unbind unflatten unsqueeze var view view_as
    """)
)
"""Methods that may be called on a tensor."""
ATTRIBUTES = frozenset({"shape", "ndim", "dtype", "T", "mT"})
"""Attributes that may be read from a tensor."""
DTYPES: dict[str, torch.dtype] = {
    name: getattr(torch, name)
    for name in _words("float16 bfloat16 float32 float64 uint8 int8 int16 int32 int64 bool")
}

"""What the norm behind a layer makes of its output: scale, zero and sign, channel by channel."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd

from snacs.errors import ModelError
from snacs.network.masking import original_of
from snacs.network.tasks import Task


def scale_of(task: Task, dense: nn.Module) -> Tensor | None:
    """What one unit of the stream is worth before the norm: 1 / (BatchNorm scale), per channel."""
    if task.sum is None:
        return None
    if task.sum.norm is None:
        weight = original_of(task.module)
        return torch.ones((), dtype=weight.dtype, device=weight.device)
    norm = dense.get_submodule(task.sum.norm)
    if not isinstance(norm, _BatchNorm) or norm.running_var is None:
        return None
    return _by_channel(task, _inverse(_factor(norm)))


def shift_of(task: Task, dense: nn.Module) -> Tensor | None:
    """The layer's output that its norm makes zero of, per channel; 0 without a norm."""
    norm = _norm_of(task, dense)
    if norm is None:
        weight = original_of(task.module)
        return torch.zeros((), dtype=weight.dtype, device=weight.device)
    if norm.running_mean is None or norm.running_var is None:
        return None
    zero = norm.running_mean
    if norm.affine:
        zero = zero - norm.bias.detach() * _inverse(_factor(norm))
    return _by_channel(task, zero)


def sign_of(task: Task, dense: nn.Module) -> Tensor | None:
    """(groups, filters) sign of what the output is multiplied with before a ReLU; 0 if unknown."""
    if not task.rectified:
        return None
    weight = original_of(task.module)
    groups = task.module.groups if isinstance(task.module, _ConvNd) else 1
    norm = _norm_of(task, dense)
    if norm is None or norm.running_var is None:
        return torch.ones(groups, len(weight) // groups, device=weight.device)
    return _inverse(_factor(norm)).sign().reshape(groups, -1)


def _norm_of(task: Task, dense: nn.Module) -> _BatchNorm | None:
    """The dense twin of the norm between a layer and the value it is solved for."""
    if task.sum is not None:
        found = None if task.sum.norm is None else dense.get_submodule(task.sum.norm)
    else:
        found = None if task.norm is None else dense.get_submodule(task.norm)
    return found if isinstance(found, _BatchNorm) else None


def _factor(norm: _BatchNorm) -> Tensor:
    """What a norm in eval mode multiplies with."""
    if norm.running_var is None:
        raise ModelError("A BatchNorm without running statistics has no fixed scale.")
    factor = (norm.running_var + norm.eps).rsqrt()
    return factor * norm.weight.detach() if norm.affine else factor


def _inverse(factor: Tensor) -> Tensor:
    """1 / factor; 0 for a channel that the norm all but switches off: it cannot make up for any."""
    usable = factor.abs() > 1e-3 * factor.abs().mean()
    return torch.where(usable, 1 / torch.where(usable, factor, 1.0), 0.0)


def _by_channel(task: Task, values: Tensor) -> Tensor:
    """In a shape that fits the layer's outputs."""
    return values.reshape(-1, *(1 for _ in range(original_of(task.module).ndim - 2)))

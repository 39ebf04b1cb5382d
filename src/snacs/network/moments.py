"""Sums over positions of what a layer sees and of what it should give.

Least squares needs no more of a layer than these: windows times windows, windows times targets.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules.conv import _ConvNd

from snacs.network.masking import original_of

# Elements of one block of windows: 64 MB in float32, which fits beside the activations.
BLOCK = 1 << 24
# Bytes of windows that are kept for solving again with other targets.
KEPT = 1 << 30
# Positions per column that are enough: the excess error of least squares is about n/N = 0.5 %.
ENOUGH = 200
ALL = slice(None)


class Moments:
    """Sums over positions of a layer's windows x and targets t, in float64, per group.

    Products are taken in the model's own precision block by block and added up in float64, so the
    relative error stays that of one block. Memory: groups · n² · 8 bytes for the Gram matrix.

    If ``images`` (how many will be added) have far more positions than n columns need, every r-th
    output row is used, image k beginning at row k mod r, so that all rows and images take part.
    """

    def __init__(self, module: nn.Module, *, images: int = 0) -> None:
        weight = original_of(module)
        self.module, self.images, self.seen = module, images, 0
        self.groups = module.groups if isinstance(module, _ConvNd) else 1
        self.columns = weight[0].numel()
        self.filters = weight.shape[0] // self.groups
        # Some accelerators have no float64; the sums then live on the CPU.
        self.device = (
            weight.device if weight.device.type in ("cpu", "cuda") else torch.device("cpu")
        )
        shape = (self.groups, self.columns, self.filters)
        self.count = 0
        self.gram = self._zeros(shape[0], shape[1], shape[1])
        self.cross = self._zeros(*shape)
        self.inputs = self._zeros(shape[0], shape[1])
        self.targets = self._zeros(shape[0], shape[2])
        self.squares = self._zeros(shape[0], shape[2])
        self.samples: list[tuple[Tensor, Tensor, Tensor]] = []
        """Windows, targets and zeros of the first positions that were added with zeros."""
        self._held = 0

    def add(self, inputs: Tensor, targets: Tensor, zeros: Tensor | None = None) -> None:
        """Add a batch: what entered the module, and what should have left it.

        ``zeros``, in the shape of the targets, are the outputs that a ReLU sees as zero: with them,
        windows and targets are held, up to ``KEPT`` bytes, for :mod:`snacs.network.refining`.
        """
        if isinstance(self.module, _ConvNd) and inputs.ndim == 1 + len(self.module.kernel_size):
            inputs, targets = inputs[None], targets[None]  # one image without a batch axis
            zeros = None if zeros is None else zeros[None]
        # Half precision is for running networks, not for sums of products.
        precise = torch.promote_types(inputs.dtype, torch.float32)
        inputs, targets = inputs.to(precise), targets.to(precise)
        skip = self._skip(targets)
        positions = -(-targets[0].numel() // (self.groups * self.filters * skip))
        step = skip * max(1, BLOCK // max(1, skip * self.groups * self.columns * positions))
        for start in range(0, inputs.shape[0], step):
            some, wanted = inputs[start : start + step], targets[start : start + step]
            cuts = [
                (slice(k, None, skip), slice((self.seen + k) % skip, None, skip))
                for k in range(min(skip, len(some)))
            ]
            x = torch.cat([windows_of(self.module, some[who], rows) for who, rows in cuts], 2)
            t = torch.cat([outputs_of(self.module, wanted[who], rows) for who, rows in cuts], 2)
            self.seen += len(some)
            self.count += x.shape[2]
            self._add(self.gram, x @ x.transpose(1, 2))
            self._add(self.cross, x @ t.transpose(1, 2))
            self._add(self.inputs, x.sum(2))
            self._add(self.targets, t.sum(2))
            self._add(self.squares, t.square().sum(2))
            if zeros is not None and self._held < KEPT:
                floor = zeros[start : start + step].to(precise)
                cut = [outputs_of(self.module, floor[who], rows) for who, rows in cuts]
                self.samples.append((x, t, torch.cat(cut, 2)))
                self._held += (x.numel() + 2 * t.numel()) * x.element_size()

    @property
    def finite(self) -> bool:
        """Whether no input and no target was NaN or infinite."""
        parts = (self.gram, self.cross, self.squares)
        return all(bool(torch.isfinite(part).all()) for part in parts)

    def error(self, weight: Tensor, offset: Tensor) -> Tensor:
        """(groups, filters) sums of squared errors of ``weight`` (groups, filters, n)."""
        w = weight.transpose(1, 2)
        quadratic = (w * (self.gram @ w)).sum(1)
        linear = (w * self.cross).sum(1)
        drift = self.targets - (w * self.inputs[:, :, None]).sum(1)
        total = self.squares - 2 * linear + quadratic
        return (total - 2 * offset * drift + self.count * offset**2).clamp(min=0.0)

    def _skip(self, targets: Tensor) -> int:
        """r: every r-th row is enough."""
        spatial = targets.shape[2:] if isinstance(self.module, _ConvNd) else targets.shape[1:-1]
        if not spatial:
            return 1
        surplus = self.images * math.prod(spatial) // (ENOUGH * self.columns)
        return min(max(1, surplus), spatial[0])

    def _zeros(self, *shape: int) -> Tensor:
        return torch.zeros(shape, dtype=torch.float64, device=self.device)

    @staticmethod
    def _add(total: Tensor, part: Tensor) -> None:
        total += part.to(total)


def windows_of(module: nn.Module, inputs: Tensor, rows: slice = ALL) -> Tensor:
    """(groups, n, positions): the windows that a convolution or linear module multiplies.

    The n columns are ordered as in ``weight[i].flatten()``. ``rows`` chooses along the first
    spatial axis of the output, or along the tokens of a linear module.
    """
    if not isinstance(module, _ConvNd):
        tokens = inputs[:, rows] if inputs.ndim > 2 else inputs
        return tokens.reshape(-1, inputs.shape[-1]).T[None]
    x = inputs.transpose(0, 1)  # channels first: the copy below then has long contiguous runs
    if any(module._reversed_padding_repeated_twice):
        mode = "constant" if module.padding_mode == "zeros" else module.padding_mode
        x = functional.pad(x, module._reversed_padding_repeated_twice, mode=mode)
    dims = len(module.kernel_size)
    for d in range(dims):
        size, gap = module.kernel_size[d], module.dilation[d]
        x = x.unfold(2 + d, (size - 1) * gap + 1, module.stride[d])[..., ::gap]
    # (C, N, o1.., k1..) -> (C, k1.., N, o1..)
    kernel = range(2 + dims, 2 + 2 * dims)
    x = x[:, :, rows].permute(0, *kernel, 1, *range(2, 2 + dims))
    return x.reshape(module.groups, -1, x[0, *(0 for _ in kernel)].numel())


def outputs_of(module: nn.Module, outputs: Tensor, rows: slice = ALL) -> Tensor:
    """(groups, filters, positions): outputs in the order of :func:`windows_of`."""
    if not isinstance(module, _ConvNd):
        tokens = outputs[:, rows] if outputs.ndim > 2 else outputs
        return tokens.reshape(-1, outputs.shape[-1]).T[None]
    outputs = outputs[:, :, rows]
    return outputs.transpose(0, 1).reshape(module.groups, -1, outputs[:, 0].numel())

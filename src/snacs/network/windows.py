"""What a convolution or linear layer sees at each output position, as plain windows.

Everything here works on a :class:`View` of one call: an input whose leading rows are images (times
whatever the network folded into the batch, such as frames or patches) and whose output positions
can be picked one by one or averaged.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from snacs.errors import InputError
from snacs.values import IntArray, Layer


@dataclass(frozen=True, eq=False)
class View:
    """One call of one layer.

    Attributes
    ----------
    padded : (rows, channels, *spatial)
        The input as the kernel meets it, padding included; for Linear the spatial size is 1·S.
    output : (rows, c_out, positions)
    plain : (rows, channels, values)
        The input itself, without padding.
    steps, taps :
        Per spatial dimension the stride, and where the kernel's taps lie in padded coordinates.
    shape :
        Spatial shape of the output.
    """

    padded: Tensor
    plain: Tensor
    output: Tensor
    steps: tuple[int, ...]
    taps: tuple[tuple[int, ...], ...]
    shape: tuple[int, ...]
    images: int
    centre: int | None
    """Index of the kernel's middle tap; None where the mean over the taps stands for it."""

    @property
    def rows_per_image(self) -> int:
        return self.padded.shape[0] // self.images

    @property
    def positions(self) -> int:
        """Output positions of one image."""
        return self.rows_per_image * math.prod(self.shape)


def view_of(module: nn.Module, layer: Layer, data: Tensor, output: Tensor, images: int) -> View:
    """Read one call of a layer; float32 whatever the network computes in."""
    with torch.no_grad():
        data, output = data.detach().float(), output.detach().float()
        view = (
            _linear(layer, data, output, images)
            if isinstance(module, nn.Linear)
            else _convolution(module, layer, data, output, images)
        )
    if view.padded.shape[0] % images:
        raise InputError(
            f"Layer {layer.name!r} was called on {view.padded.shape[0]} rows for {images} images: "
            "they cannot be assigned to images. Leave it out with ignore=."
        )
    return view


def pick(view: View, places: IntArray) -> tuple[Tensor, Tensor]:
    """Windows (n, channels, kernel) and outputs (n, c_out) at ``places`` (images, k) per image."""
    chosen = torch.from_numpy(np.ascontiguousarray(places)).to(view.padded.device)
    per_row = math.prod(view.shape)
    first = torch.arange(view.images, device=chosen.device)[:, None] * view.rows_per_image
    rows = (first + chosen // per_row).flatten()
    spot = (chosen % per_row).flatten()
    where = torch.zeros((len(spot), 1), dtype=torch.long, device=spot.device)
    stride = 1
    for dim in reversed(range(len(view.shape))):
        coordinate = spot % view.shape[dim] * view.steps[dim]
        taps = torch.tensor(view.taps[dim], device=spot.device)
        along = (coordinate[:, None] + taps[None, :]) * stride
        where = (along[:, :, None] + where[:, None, :]).flatten(1)
        spot = spot // view.shape[dim]
        stride *= view.padded.shape[2 + dim]
    flat = view.padded.flatten(2)
    windows = flat[rows[:, None], :, where].transpose(1, 2)
    return windows.contiguous(), view.output[rows, :, (chosen % per_row).flatten()]


def window_means(view: View) -> Tensor:
    """Mean input under each tap over all output positions: (images, channels, kernel).

    The mean of a convolution is linear in its weights:
    mean over positions of ``output`` = ``weight · window_means + bias``.
    """
    # Taps at different rows and columns are sums over a grid: one small product per dimension.
    found = view.padded
    for axis in reversed(range(len(view.shape))):  # the last first: its product copies nothing
        dim, taps, step, count = axis + 2, view.taps[axis], view.steps[axis], view.shape[axis]
        size = found.shape[dim]
        if count == 1 and taps == tuple(range(size)):
            continue
        meets = torch.zeros((size, len(taps)), device=found.device)
        for tap, start in enumerate(taps):
            meets[start : start + (count - 1) * step + 1 : step, tap] = 1 / count
        found = found.transpose(dim, -1).matmul(meets).transpose(dim, -1)
    return _per_image(view, found.flatten(2))


def input_squares(view: View) -> Tensor:
    """Sum of squares of each input channel over all rows and positions: (channels,), float64."""
    norms: Tensor = torch.linalg.vector_norm(view.plain, dim=2)
    return norms.double().square().sum(0)


def output_means(view: View) -> Tensor:
    """Spatial mean of the output: (images, c_out)."""
    return _per_image(view, view.output.mean(2))


def input_means(view: View) -> Tensor:
    """Plain spatial mean of the input: (images, channels)."""
    return _per_image(view, view.plain.mean(2))


def centres(view: View, windows: Tensor) -> Tensor:
    """The input channels at sampled positions: (n, channels)."""
    return windows.mean(2) if view.centre is None else windows[:, :, view.centre]


def _per_image(view: View, values: Tensor) -> Tensor:
    return values.reshape(view.images, view.rows_per_image, *values.shape[1:]).mean(1)


def _linear(layer: Layer, data: Tensor, output: Tensor, images: int) -> View:
    """Tokens are positions; behind a Flatten each channel has ``kernel`` columns."""
    if data.ndim == 1:
        data, output = data[None], output[None]
    if data.ndim > 2 and data.shape[0] != images and data.shape[1] == images:
        data, output = data.transpose(0, 1), output.transpose(0, 1)  # sequence first
    tokens = math.prod(data.shape[1:-1])
    columns = data.reshape(-1, tokens, layer.channels, layer.kernel)
    plain = columns.permute(0, 2, 1, 3)
    return View(
        padded=plain,
        plain=plain.flatten(2),
        output=output.reshape(-1, tokens, layer.c_out).transpose(1, 2),
        steps=(1, 1),
        taps=((0,), tuple(range(layer.kernel))),
        shape=(tokens, 1),
        images=images,
        centre=0 if layer.kernel == 1 else None,
    )


def _convolution(
    module: nn.Module, layer: Layer, data: Tensor, output: Tensor, images: int
) -> View:
    dims = int(layer.kind[4])
    if data.ndim == dims + 1:
        data, output = data[None], output[None]
    size, dilation, stride = (
        tuple(int(v) for v in getattr(module, name))
        for name in ("kernel_size", "dilation", "stride")
    )
    middle = 0
    for k in size:
        middle = middle * k + k // 2
    return View(
        padded=_pad(module, data, size, dilation),
        plain=data.flatten(2),
        output=output.flatten(2),
        steps=stride,
        taps=tuple(tuple(range(0, k * d, d)) for k, d in zip(size, dilation, strict=True)),
        shape=tuple(output.shape[2:]),
        images=images,
        centre=middle,
    )


def _pad(
    module: nn.Module, data: Tensor, size: tuple[int, ...], dilation: tuple[int, ...]
) -> Tensor:
    padding, mode = getattr(module, "padding"), str(getattr(module, "padding_mode"))  # noqa: B009
    sides: list[int] = []
    for dim in reversed(range(len(size))):
        if padding == "same":
            total = dilation[dim] * (size[dim] - 1)
            sides += [total // 2, total - total // 2]
        else:
            sides += [0, 0] if padding == "valid" else [int(padding[dim])] * 2
    if not any(sides):
        return data
    return functional.pad(data, sides, mode="constant" if mode == "zeros" else mode)

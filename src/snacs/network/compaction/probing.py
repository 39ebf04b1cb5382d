"""Which channels are 0, or constant, whatever image comes in: found by experiment.

A filter *varies* if it has a weight other than 0 on a channel that varies. Two images are run with
the outputs of all varying filters replaced by noise, mild and violent, the second image's being the
negative of the first's, so that a threshold lets one of them through. What a layer still reads as
one and the same number everywhere depends on no image, through whatever norms, activations,
products and pools it came. Channels found constant can leave further filters without varying
inputs, so this is repeated until nothing changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from snacs.errors import ModelError
from snacs.network.batches import Forward, evaluating, map_tensors, run, size_of, tensors_of
from snacs.network.seen import channel_dim, kind_of
from snacs.values import BoolArray, FloatArray

_SCALES = (1.0, 1e4, 1.0, 1e4, 1.0, 1e2)
"""One draw each: mild noise leaves softmax and sigmoid alive, violent noise passes thresholds.

Several, because a product of two thresholds is 0 in both images of a draw in half of all cases.
"""


@dataclass(frozen=True, eq=False)
class Probe:
    """Per layer: which filters vary, and the value of each input channel that does not (else NaN).

    Channels count over all groups; of a Linear layer they are its input features.
    """

    varies: dict[str, BoolArray]
    values: dict[str, FloatArray]
    notes: tuple[str, ...] = ()


def alive_of(module: nn.Module) -> BoolArray:
    """(c_out, channels of a group) or (c_out, features): which connections have a weight."""
    weight: Tensor = getattr(module, "weight")  # noqa: B009 - typed as Tensor | Module
    table = weight.detach() != 0
    found: BoolArray = (table.flatten(2).any(2) if table.ndim > 2 else table).cpu().numpy()
    return found


def spread_groups(alive: BoolArray, groups: int) -> BoolArray:
    """The (c_out, channels of all groups) table of a grouped convolution; others as they are."""
    if groups == 1:
        return alive
    rows, width = alive.shape
    full = np.zeros((rows, width * groups), dtype=bool)
    group = np.arange(rows) // (rows // groups)
    columns = group[:, None] * width + np.arange(width)[None, :]
    full[np.arange(rows)[:, None], columns] = alive
    return full


def probe(
    model: nn.Module,
    layers: Mapping[str, nn.Module],
    batch: Any,
    *,
    raw: Mapping[str, BoolArray],
    forward: Forward | None = None,
) -> Probe:
    """Find constant channels of ``layers``; ``batch`` is on the model's device.

    ``raw`` are the channels of each layer that the network's own input reaches: they vary, although
    noise cannot show it where the input holds indices.
    """
    alive = {
        name: spread_groups(alive_of(module), int(getattr(module, "groups", 1)))
        for name, module in layers.items()
    }
    varies = {name: _rows(table) for name, table in alive.items()}
    while True:
        try:
            ranges = _run(model, layers, batch, varies, forward)
        except ModelError as error:
            note = f"Constant channels were not looked for: the network fails on noise ({error})"
            unknown = {name: np.full(table.shape[1], np.nan) for name, table in alive.items()}
            return Probe({n: _rows(t) for n, t in alive.items()}, unknown, (note,))
        values = {
            name: np.where((low == high) & np.isfinite(low) & ~raw[name], low, np.nan)
            for name, (low, high) in ranges.items()
        }
        new = {name: _rows(alive[name] & np.isnan(values[name])) for name in alive}
        if all(np.array_equal(new[name], varies[name]) for name in new):
            return Probe(varies, values)
        varies = new


def _rows(table: BoolArray) -> BoolArray:
    return np.asarray(table.any(axis=1))


_Ranges = dict[str, tuple[FloatArray, FloatArray]]


def _run(
    model: nn.Module,
    layers: Mapping[str, nn.Module],
    batch: Any,
    varies: Mapping[str, BoolArray],
    forward: Forward | None,
) -> _Ranges:
    """Lowest and highest value of each input channel over all draws, calls and positions."""
    ranges: _Ranges = {}
    size = size_of(batch)
    pair = map_tensors(
        batch, lambda t: torch.cat([t[:1]] * 2) if t.ndim and t.shape[0] == size else t
    )
    stream = torch.Generator().manual_seed(0)
    scale = 1.0
    handles = []

    def note(module: nn.Module, args: Any, kwargs: Any, *, name: str) -> None:
        data = next(tensors_of([args, kwargs]))
        moved = data.detach().movedim(channel_dim(str(kind_of(module)), data.ndim), 0).flatten(1)
        low, high = (t.double().cpu().numpy() for t in torch.aminmax(moved, dim=1))
        if name in ranges:
            low, high = np.minimum(low, ranges[name][0]), np.maximum(high, ranges[name][1])
        ranges[name] = (low, high)

    def disturb(module: nn.Module, args: Any, output: Any, *, name: str) -> Any:  # noqa: ARG001
        dim = channel_dim(str(kind_of(module)), output.ndim)
        shape = [1] * output.ndim
        shape[dim] = output.shape[dim]
        mask = torch.from_numpy(varies[name]).reshape(shape).to(output.device)
        return torch.where(mask, _noise(output, scale, stream), output)

    for name, module in layers.items():
        before, after = partial(note, name=name), partial(disturb, name=name)
        handles.append(module.register_forward_pre_hook(before, with_kwargs=True))
        handles.append(module.register_forward_hook(after))
    try:
        with evaluating(model):
            for scale in _SCALES:
                run(model, noise_like(pair, stream, scale), forward)
    finally:
        for handle in handles:
            handle.remove()
    return ranges


def noise_like(batch: Any, stream: torch.Generator, scale: float = 1.0) -> Any:
    """The batch with its floating tensors replaced by noise, half of it the other's negative."""
    return map_tensors(
        batch, lambda t: _noise(t, scale, stream) if t.is_floating_point() else t.clone()
    )


def _noise(like: Tensor, scale: float, stream: torch.Generator) -> Tensor:
    noise = torch.randn(like.shape, generator=stream)
    if like.ndim and like.shape[0] % 2 == 0:
        half = like.shape[0] // 2
        noise[half:] = -noise[:half]
    return (noise * scale).to(like.device, like.dtype)

"""BatchNorm statistics measured again on given images."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from snacs.errors import InputError, ModelError
from snacs.network.batches import Forward, evaluating, move, run, size_of


def reestimate_(
    model: nn.Module, images: Iterable[Any], *, forward: Forward | None = None
) -> list[str]:
    """Replace running means and variances by those of ``images``, weighted by batch size.

    Use images as the network saw them in training (augmented): plain ones cost even a dense network
    accuracy. Everything else stays in eval mode; an error leaves the model as it was.

    Returns
    -------
    list of str
        Names of the modules that were measured; empty if the network has none.
    """
    norms = {
        name: module
        for name, module in model.named_modules()
        if isinstance(module, _BatchNorm) and module.track_running_stats
    }
    if not norms:
        return []
    saved = {name: _statistics(norm) for name, norm in norms.items()}
    momenta = {name: norm.momentum for name, norm in norms.items()}
    try:
        with evaluating(model):
            for norm in norms.values():
                norm.train()
                norm.reset_running_stats()
            _measure(model, images, list(norms.values()), forward)
        for name, norm in norms.items():
            if not all(bool(torch.isfinite(t).all()) for t in _statistics(norm)[:2]):
                raise ModelError(
                    f"The statistics of {name!r} came out NaN or infinite on the given images. "
                    "Check the images and the weights before this layer."
                )
    except BaseException:
        for name, norm in norms.items():
            for now, before in zip(_buffers(norm), saved[name], strict=True):
                now.copy_(before)
        raise
    finally:
        for name, norm in norms.items():
            norm.momentum = momenta[name]
    return list(norms)


def _measure(
    model: nn.Module, images: Iterable[Any], norms: list[_BatchNorm], forward: Forward | None
) -> None:
    seen = 0
    for batch in images:
        size = size_of(batch)
        seen += size
        for norm in norms:
            # size/seen makes the running value the mean over images; the first batch replaces all.
            norm.momentum = size / seen
        run(model, move(batch, model), forward)
    if seen == 0:
        raise InputError("There are no images to measure BatchNorm statistics on.")


def _buffers(norm: _BatchNorm) -> list[Tensor]:
    found = (norm.running_mean, norm.running_var, norm.num_batches_tracked)
    return [tensor for tensor in found if tensor is not None]


def _statistics(norm: _BatchNorm) -> list[Tensor]:
    return [tensor.clone() for tensor in _buffers(norm)]

"""Outputs of modules to differentiate by, a few images at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from snacs.network.batches import evaluating, map_tensors, size_of

# Images per backward pass: of ResNet50 at 224 pixels this many take about 3 GB.
CHUNK = 16


@contextmanager
def watched(
    model: nn.Module, modules: Mapping[str, nn.Module]
) -> Iterator[list[tuple[str, Tensor]]]:
    """Inside, passes run in eval mode with gradients, and append what the modules return.

    The list holds (name, output) in the order of calls; the caller clears it before each pass.
    Gradients of parameters are left untouched as long as only these outputs are differentiated by.
    """
    outputs: list[tuple[str, Tensor]] = []

    def watch(name: str) -> Any:
        def hook(_module: nn.Module, _inputs: Any, output: Tensor) -> Tensor:
            if not output.requires_grad:  # all parameters before it are frozen
                output.requires_grad_()
            outputs.append((name, output))
            return output.clone()  # the network may change it in place

        return hook

    handles = [module.register_forward_hook(watch(name)) for name, module in modules.items()]
    try:
        with evaluating(model), torch.enable_grad(), torch.compiler.set_stance("force_eager"):
            yield outputs
    finally:
        for handle in handles:
            handle.remove()


def chunks(batches: Iterable[Any], most: int = CHUNK) -> Iterator[Any]:
    """The same images in the same order, at most ``most`` at a time."""
    for batch in batches:
        size = size_of(batch)
        for start in range(0, size, most):
            part = slice(start, start + most)

            def cut(tensor: Tensor, part: slice = part, size: int = size) -> Tensor:
                return tensor[part] if tensor.ndim and len(tensor) == size else tensor

            yield map_tensors(batch, cut)

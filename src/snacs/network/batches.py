"""How a batch is read, moved and run: the only place that knows what batches look like.

A batch is ``(x, y)``, ``x`` alone, or anything else (several inputs, a dict) together with a
``forward`` function of model and batch. Labels are the last element of a tuple, or the entry
"labels", "label" or "y" of a dict.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from snacs.errors import InputError, ModelError, SnacsError

Forward = Callable[[nn.Module, Any], Any]
_LABEL_KEYS = ("labels", "label", "y")
_LOGIT_KEYS = ("logits", "out", "output")


def run(model: nn.Module, batch: Any, forward: Forward | None = None) -> Any:
    """One forward pass; an error inside the network comes out as a :class:`ModelError`."""
    try:
        return (forward or default_forward)(model, batch)
    except SnacsError:
        raise
    except Exception as error:
        raise ModelError(
            f"The network's forward failed on a batch of {describe(batch)}: "
            f"{type(error).__name__}: {error}. Check that the batches have the shape that the "
            "network expects, or pass forward=, a function of model and batch."
        ) from error


def default_forward(model: nn.Module, batch: Any) -> Any:
    """``model(x)`` for x or (x, y), ``model(**batch)`` without its labels for a dict."""
    if isinstance(batch, Mapping):
        return model(**{k: v for k, v in batch.items() if k not in _LABEL_KEYS})
    if isinstance(batch, tuple | list):
        return model(batch[0])
    return model(batch)


def labels_of(batch: Any) -> Tensor | None:
    """The (n,) integer labels of a batch, or None where it carries none."""
    found: Any = None
    if isinstance(batch, Mapping):
        found = next((batch[key] for key in _LABEL_KEYS if key in batch), None)
    elif isinstance(batch, tuple | list) and len(batch) > 1:
        found = batch[-1]
    if found is None:
        return None
    labels = torch.as_tensor(found)
    if labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool:
        raise InputError(
            f"Labels must be whole numbers, one class index per image. Got {labels.dtype}; "
            "convert them with labels.long()."
        )
    if labels.ndim != 1 or len(labels) != size_of(batch):
        raise InputError(
            f"Labels must be one class index per image, shape ({size_of(batch)},). "
            f"Got shape {tuple(labels.shape)}."
        )
    if len(labels) and int(labels.min()) < 0:
        raise InputError(f"Labels must not be negative. Got {int(labels.min())}.")
    return labels.long()


def logits_of(output: Any) -> Tensor:
    """The (n, classes) scores among whatever a network returned."""
    if isinstance(output, Mapping):
        output = next((output[k] for k in _LOGIT_KEYS if k in output), None)
    elif isinstance(output, tuple | list) and output:
        output = output[0]
    if not isinstance(output, Tensor) or output.ndim != 2:
        shape = tuple(output.shape) if isinstance(output, Tensor) else type(output).__name__
        raise ModelError(
            "The network must return class scores of shape (images, classes), alone, first in a "
            f"tuple, or in a dict under one of {', '.join(_LOGIT_KEYS)}. Got {shape}; pass "
            "forward=, a function of model and batch that returns them."
        )
    return output


def size_of(batch: Any) -> int:
    """Images in a batch: the first dimension of its first tensor."""
    for tensor in tensors_of(batch):
        if tensor.ndim:
            return int(tensor.shape[0])
    raise InputError(f"A batch must hold at least one tensor. Got {describe(batch)}.")


def tensors_of(batch: Any) -> Iterator[Tensor]:
    """All tensors of a nested batch, in order."""
    if isinstance(batch, Tensor):
        yield batch
    elif isinstance(batch, Mapping):
        for value in batch.values():
            yield from tensors_of(value)
    elif isinstance(batch, tuple | list):
        for value in batch:
            yield from tensors_of(value)


def map_tensors(batch: Any, change: Callable[[Tensor], Any]) -> Any:
    """The same nest with every tensor changed."""
    if isinstance(batch, Tensor):
        return change(batch)
    if isinstance(batch, Mapping):
        return {key: map_tensors(value, change) for key, value in batch.items()}
    if isinstance(batch, tuple | list):
        parts = [map_tensors(value, change) for value in batch]
        return type(batch)(*parts) if hasattr(batch, "_fields") else type(batch)(parts)
    return batch


def move(batch: Any, model: nn.Module) -> Any:
    """The batch on the model's device, its floating tensors in the model's dtype."""
    reference = next(model.parameters(), None)
    if reference is None:
        return batch

    def change(tensor: Tensor) -> Tensor:
        floating = tensor.is_floating_point() and reference.is_floating_point()
        return tensor.to(reference.device, reference.dtype if floating else tensor.dtype)

    return map_tensors(batch, change)


def describe(batch: Any) -> str:
    """Shapes and types of a batch, for messages."""
    if isinstance(batch, Tensor):
        return f"{str(batch.dtype).removeprefix('torch.')}{tuple(batch.shape)}"
    if isinstance(batch, Mapping):
        return "{" + ", ".join(f"{k}: {describe(v)}" for k, v in batch.items()) + "}"
    if isinstance(batch, tuple | list):
        return "(" + ", ".join(describe(value) for value in batch) + ")"
    return type(batch).__name__


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Eval mode and no gradients inside; every module's own mode is restored after."""
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module, mode in modes.items():
            module.training = mode

"""One step for the logits themselves, once every layer has been solved for its own output.

Layer by layer nobody asks how the errors that remain add up at the end. How a logit of an image
moves with the scale and the shift of each BatchNorm channel, all of them together, is a matter of
one backward pass per class but one (centred logits add up to zero). With A these derivatives (one
row per image and logit) and m what the logits lack of the dense network's, ridge regression gives
the change

    argmin_z ‖A z − m‖² / rows + λ ‖z‖²,

columns of A taken to unit mean square. Half of it is made: the network is not linear, and the step
fits the images it sees better than others. That, and λ, were chosen on ResNet56 (docs/research.md).
Silenced channels stay silent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from snacs.network.batches import Forward, logits_of, move, run
from snacs.network.jacobian import chunks, watched
from snacs.network.masking import mask_of, original_of

Progress = Callable[[int, int], None]

STEP = 0.5
"""Of the solution."""
RIDGE = 1000.0
"""λ times images: 1 for 1,000 of them. Fewer images say less, and less is made of them."""
FLOOR = 0.01
"""Columns smaller than this share of the mean one count as if they were as large."""
CHUNK = 32
"""Images per backward pass: faster than fewer, no slower than more (ResNet56)."""
ROWS = 10_000
"""Images times classes: further batches are not looked at."""
FEWEST = 200
"""Images of so many classes that fewer than this remain are too few for a step."""
WIDEST = 10_000
"""Scales and shifts: their Gram matrix then takes 0.8 GB, and solving three times that."""


def why_not(model: nn.Module, classes: int) -> str | None:
    """Why there is no such step for a network; None if there is."""
    columns = 2 * sum(norm.num_features for norm in norms_of(model).values())
    if not columns:
        return "the network has no BatchNorm to scale"
    if ROWS // classes < FEWEST:
        return f"{classes} classes, more than {ROWS // FEWEST}"
    return f"{columns} scales and shifts, more than {WIDEST}" if columns > WIDEST else None


def approach_(
    model: nn.Module,
    batches: Sequence[Any],
    target: Sequence[Tensor],
    *,
    forward: Forward | None = None,
    progress: Progress | None = None,
) -> str | None:
    """Scale and shift all BatchNorm channels; returns why that could not be done, or None.

    Parameters
    ----------
    target : the dense network's logits, (images, classes) for every batch.
    progress : called with (batches done, batches).
    """
    norms = norms_of(model)
    try:
        gram, right, rows = derived(model, norms, batches, target, forward, progress)
    except RuntimeError as error:
        return f"the derivatives cannot be had ({error})"
    images = rows / target[0].shape[1]
    change_(norms, STEP * solution(gram.div_(rows), right.div_(rows), RIDGE / images))
    return None


def solution(gram: Tensor, right: Tensor, ridge: float) -> Tensor:
    """Ridge regression on columns of unit mean square; columns of zeros get zero.

    Examples
    --------
    Twice as large a column is half as large a change, and λ = 1 halves both.

    >>> solution(torch.tensor([[1.0, 0.0], [0.0, 4.0]]), torch.tensor([1.0, 2.0]), 1.0)
    tensor([0.5000, 0.2500])
    """
    size = gram.diagonal().clamp(min=0.0).sqrt()
    size = size.clamp(min=max(FLOOR * float(size.mean()), torch.finfo(gram.dtype).tiny))
    pulled = (gram / size).div_(size[:, None])
    pulled.diagonal().add_(ridge)
    solved: Tensor = torch.linalg.solve(pulled, right / size)
    return solved / size


def norms_of(model: nn.Module) -> dict[str, _BatchNorm]:
    """Those whose scale and shift act on each image alone."""
    return {
        name: module
        for name, module in model.named_modules()
        if isinstance(module, _BatchNorm) and module.affine and module.track_running_stats
    }


def derived(
    model: nn.Module,
    norms: dict[str, _BatchNorm],
    batches: Sequence[Any],
    target: Sequence[Tensor],
    forward: Forward | None = None,
    progress: Progress | None = None,
) -> tuple[Tensor, Tensor, int]:
    """AᵀA, Aᵀm and the number of rows, in double precision on the CPU."""
    columns = 2 * sum(norm.num_features for norm in norms.values())
    gram, right = torch.zeros(columns, columns).double(), torch.zeros(columns).double()
    count, classes = 0, target[0].shape[1]
    for number, (batch, wanted) in enumerate(zip(batches, target, strict=True)):
        if count >= ROWS // classes * classes:
            break
        found: list[Tensor] = []
        missing: list[Tensor] = []
        start = 0
        with watched(model, norms) as outputs:
            for chunk in chunks([batch], CHUNK):
                outputs.clear()
                logits = logits_of(run(model, move(chunk, model), forward))
                if not outputs or any(len(output) != len(logits) for _, output in outputs):
                    raise RuntimeError("BatchNorm does not see one row per image")
                end = start + len(logits)
                lacks = wanted[start:end].to(logits) - logits.detach()
                missing.append(_centred(lacks).T.reshape(-1))
                start = end
                centred = _centred(logits).unbind(dim=1)
                rest: Tensor | float = 0.0
                for one in centred[:-1]:
                    gradients = torch.autograd.grad(
                        one.sum(), [o for _, o in outputs], retain_graph=True, allow_unused=True
                    )
                    found.append(_row(outputs, gradients, norms, len(logits)))
                    rest = rest - found[-1]
                if isinstance(rest, Tensor):  # all together are zero, which says the last one
                    found.append(rest)
        rows = torch.cat(found)
        gram += (rows.T @ rows).double().cpu()
        right += (rows.T @ torch.cat(missing)).double().cpu()
        count += len(rows)
        if progress is not None:
            progress(number + 1, len(batches))
    return gram, right, count


def _centred(logits: Tensor) -> Tensor:
    """A common shift of all logits changes no prediction."""
    return logits - logits.mean(dim=1, keepdim=True)


def _row(
    outputs: list[tuple[str, Tensor]],
    gradients: Sequence[Tensor | None],
    norms: dict[str, _BatchNorm],
    images: int,
) -> Tensor:
    """(images, columns): derivatives by the shifts and the scales of each norm, in their order."""
    parts = {
        name: torch.zeros(2, images, norm.num_features).to(outputs[0][1])
        for name, norm in norms.items()
    }
    for (name, output), gradient in zip(outputs, gradients, strict=True):
        if gradient is not None:
            flat = gradient.reshape(images, output.shape[1], -1)
            parts[name][0] += flat.sum(dim=2)
            parts[name][1] += (flat * output.detach().reshape(flat.shape)).sum(dim=2)
    for name, norm in norms.items():
        silent = mask_of(norm, "bias")
        if silent is not None:
            parts[name] *= silent.keep.to(parts[name])
    return torch.cat([part for both in parts.values() for part in both], dim=1)


def change_(norms: dict[str, _BatchNorm], change: Tensor) -> None:
    """Multiply what each norm returns by 1 + scale and add shift, in its own scale and shift."""
    at = 0
    with torch.no_grad():
        for norm in norms.values():
            weight, bias = original_of(norm), original_of(norm, "bias")
            shift, scale = change[at : at + 2 * len(weight)].to(weight).chunk(2)
            weight.mul_(1 + scale)
            bias.mul_(1 + scale).add_(shift)
            at += 2 * len(weight)

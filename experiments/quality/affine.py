"""Does one step for the logits themselves help after repair? Gauss–Newton on scales and shifts.

Repair solves layer by layer. Here the scale and the shift of all BatchNorm channels together are
solved once, by ridge least squares, so that the logits of the calibration images come nearer to the
dense network's: ten backward passes give how each logit of each image depends on each of them.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from workbench import Workbench, answer

from snacs.network.masking import bake_

RIDGES = (0.1, 0.3, 1.0)
STEPS = (0.5, 1.0)


def norms_of(model: nn.Module) -> list[nn.BatchNorm2d]:
    return [module for module in model.modules() if isinstance(module, nn.BatchNorm2d)]


def derivatives(model: nn.Module, dense: nn.Module, batches: Iterable[Any]) -> tuple[Any, Any]:
    """(images · logits, 2 · channels) by shift and scale, and what is missing of each logit."""
    outputs: list[Tensor] = []

    def hook(_module: nn.Module, _inputs: Any, output: Tensor) -> Tensor:
        outputs.append(output.clone().requires_grad_(True) if not output.requires_grad else output)
        return outputs[-1].clone()  # the ReLU works in place

    rows, missing = [], []
    handles = [norm.register_forward_hook(hook) for norm in norms_of(model)]
    try:
        for x, _ in batches:
            for part in x.split(50):
                outputs.clear()
                logits = model(part)
                with torch.no_grad():
                    error = dense(part) - logits
                    error -= error.mean(dim=1, keepdim=True)
                logits = logits - logits.mean(dim=1, keepdim=True)
                for index in range(logits.shape[1]):
                    found = torch.autograd.grad(logits[:, index].sum(), outputs, retain_graph=True)
                    pairs = zip(found, outputs, strict=True)
                    both = [[g.sum((2, 3)), (g * o.detach()).sum((2, 3))] for g, o in pairs]
                    rows.append(torch.cat([part for pair in both for part in pair], dim=1))
                    missing.append(error[:, index])
    finally:
        for handle in handles:
            handle.remove()
    return torch.cat(rows), torch.cat(missing)


def moved(model: nn.Module, change: Tensor) -> nn.Module:
    """A copy whose norms are shifted and scaled."""
    model = copy.deepcopy(model)
    at = 0
    with torch.no_grad():
        for norm in norms_of(model):
            count = norm.num_features
            shift, scale = change[at : at + count], change[at + count : at + 2 * count]
            norm.bias.mul_(1 + scale).add_(shift)
            norm.weight.mul_(1 + scale)
            at += 2 * count
    return model


def ask(bench: Workbench, target: float) -> None:
    model = bench.masked(bench.plan(target), bench.magnitudes(bench.dense))
    bench.repair(model)
    bake_(model)
    model.eval()
    bench.show(f"{target:.0%}, repaired", model)
    rows, missing = derivatives(model, bench.dense.eval(), bench.job.calibration.batches)
    size = rows.square().mean(dim=0).sqrt()
    size += 1e-6 * size.mean()
    rows = (rows / size).double()
    gram, right = rows.T @ rows / len(rows), rows.T @ missing.double() / len(rows)
    for ridge in RIDGES:
        solved = torch.linalg.solve(gram + ridge * torch.eye(len(gram)).double(), right).float()
        for step in STEPS:
            words = f"{target:.0%}, ridge {ridge:g}, step {step:g}"
            bench.show(words, moved(model, step * solved / size))


if __name__ == "__main__":
    answer(ask, __doc__)

"""The surgeon's score once for all kernels, or anew after each removal.

Taking a kernel out moves its share onto the weights that stay, so what the others are worth
changes. This follows it exactly: after each removal its rows and columns leave the inverse
covariance. A layer of 64 × 64 kernels takes some seconds here.

Without arguments: how much of some layers' outputs least squares cannot bring back, by which score.
With ``--compare``: the default with this score in its place, as ``snacs compare`` has it.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import torch
from asking import ask, calibration_of
from torch import nn

from snacs import ordering
from snacs.scores.information import slopes
from snacs.scores.surgeon import RIDGE, surgeon

METHODS = ("default", "l2-default")
LAYERS = ("layer1.4.conv1", "layer2.4.conv1", "layer2.4.conv2", "layer3.4.conv1")
TARGETS = (0.6, 0.7, 0.8)


def greedy(weight: Any, covariance: Any, *, importance: Any, cross: Any = None, **_: Any) -> Any:
    """(filters, c_in) scores; low goes first. Takes what ``surgeon`` takes."""
    filters, count, size = weight.shape
    flat = np.asarray(weight, dtype=np.float64).reshape(filters, -1)
    pull = RIDGE * float(np.diagonal(covariance).mean())
    if not pull > 0:
        return np.zeros((filters, count))
    inverse = np.linalg.inv(covariance + pull * np.eye(len(covariance)))
    wanted = flat @ covariance if cross is None else cross
    rows = [eliminate(inverse, row, size) for row in (wanted + pull * flat) @ inverse]
    order, loss = (np.array(part) for part in zip(*rows, strict=True))
    scores = slopes(order, np.cumsum(loss, axis=1))
    turn = np.argsort(order, axis=1)  # of equal slopes the earlier goes first
    return scores * (1 + 1e-9 * turn) * np.sqrt(importance)[:, None]


def eliminate(inverse: Any, weight: Any, size: int) -> tuple[list[int], list[float]]:
    """Kernels of one filter in the order in which they go, and the error that each adds.

    >>> x = np.array([[1, 1, 1], [1, 1, -1], [-1, -1, 1], [-1, -1, -1.]])
    >>> inverse = np.linalg.inv(x.T @ x / 4 + 1e-9 * np.eye(3))
    >>> order, loss = eliminate(inverse, np.array([1, 1, 3.]), 1)
    >>> order, np.round(loss, 3).tolist()  # the other twin takes the first one's share
    ([0, 1, 2], [0.0, 4.0, 9.0])
    """
    inverse, weight = inverse.copy(), weight.copy()
    alive = list(range(len(weight) // size))
    order, loss = [], []
    while alive:
        blocks = inverse.reshape(-1, size, len(weight) // size, size)[alive, :, alive, :]
        parts = weight.reshape(-1, size)[alive]
        cost = np.einsum("ak,akl,al->a", parts, np.linalg.inv(blocks), parts)
        kernel = alive.pop(int(np.argmin(cost)))
        mine = slice(kernel * size, (kernel + 1) * size)
        share = inverse[:, mine] @ np.linalg.inv(inverse[mine, mine])
        weight -= share @ weight[mine]
        inverse -= share @ inverse[mine]
        order.append(kernel)
        loss.append(max(float(cost.min()), 0.0))
    return order, loss


def lost(weight: Any, keep: Any, covariance: Any, other: Any) -> float:
    """Share of the outputs' variance, on other images, that the best kept weights leave out."""
    size = weight.shape[2]
    pulled = covariance + RIDGE * float(np.diagonal(covariance).mean()) * np.eye(len(covariance))
    left = whole = 0.0
    for row, kept in zip(weight.reshape(len(weight), -1), np.repeat(keep, size, 1), strict=True):
        fit = np.zeros_like(row)
        if kept.any():
            fit[kept] = np.linalg.solve(pulled[np.ix_(kept, kept)], (pulled @ row)[kept])
        left += (fit - row) @ other @ (fit - row)
        whole += row @ other @ row
    return left / whole


def table() -> None:
    """One line per layer and target: L2, the score taken once, the score taken anew."""
    model, images = calibration_of("resnet56", 2000)
    seen: dict[str, list[Any]] = {name: [] for name in LAYERS}
    for name in LAYERS:
        model.get_submodule(name).register_forward_pre_hook(
            lambda _module, inputs, name=name: seen[name].append(inputs[0])
        )
    with torch.no_grad():
        for batch in images:
            model(batch)
    for name in LAYERS:
        module = model.get_submodule(name)
        half = len(seen[name]) // 2
        first, second = (_covariance(module, p) for p in (seen[name][:half], seen[name][half:]))
        weight = module.weight.detach().double().flatten(2).numpy()
        ones = np.ones(len(weight))
        scores = {
            "l2": (weight**2).sum(2),
            "once": surgeon(weight, first, importance=ones),
            "anew": greedy(weight, first, importance=ones),
        }
        for target in TARGETS:
            figures = []
            for how, values in scores.items():
                keep = values > np.quantile(values, target)
                figures.append(f"{how} {lost(weight, keep, first, second):.3f}")
            print(f"{name} {target:.0%}: {', '.join(figures)}", flush=True)


def _covariance(module: nn.Module, inputs: list[Any]) -> Any:
    windows = [nn.functional.unfold(x, 3, padding=1, stride=module.stride) for x in inputs]
    flat = torch.cat([w.transpose(0, 1).flatten(1) for w in windows], dim=1)
    return torch.cov(flat, correction=0).double().numpy()


if __name__ == "__main__":
    if "--compare" in sys.argv:
        sys.argv.remove("--compare")
        ordering.surgeon = greedy  # type: ignore[assignment]
        ask("greedy", METHODS)
    table()

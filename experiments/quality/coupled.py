"""Both sides of a filter chosen together, and whether that makes better masks.

A filter that hardly anybody reads any more is not worth its inputs, and one that has lost most of
its inputs is hardly worth reading. Scores look at one layer and know nothing of this. Here the
squared magnitudes of both convolutions of every residual block are multiplied by what is left on
the other side, to a power, in turn until the masks settle; every layer gives as many kernels as
under the default. The larger the power (``--coupling``), the more filters die on both sides, and go
for good when the network is compacted. 0 are plain magnitudes.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import numpy as np
from asking import ask

from snacs.cli import comparing
from snacs.connections import prune_order
from snacs.experiments.cells import Bench
from snacs.plans import Plan

METHODS = ("default", "l2-default")
COUPLED = METHODS[1]
ROUNDS = 20


def coupled(first: Any, second: Any, counts: tuple[int, int], power: float) -> tuple[Any, Any]:
    """Masks of two layers, of which the second alone reads the first; ``counts`` go.

    >>> first, second = np.array([[3.0, 2.0], [2.5, 2.0]]), np.array([[9.0, 1.0]])
    >>> [mask.tolist() for mask in coupled(first, second, (2, 1), 0.0)]
    [[[True, False], [True, False]], [[True, False]]]
    >>> [mask.tolist() for mask in coupled(first, second, (2, 1), 1.0)]  # nobody reads the other
    [[[True, True], [False, False]], [[True, False]]]
    """
    keep, read = _kept(first, counts[0]), _kept(second, counts[1])
    for _ in range(ROUNDS):
        keep = _kept(first * _left(second, read, 0)[:, None] ** power, counts[0])
        read = _kept(second * _left(first, keep, 1) ** power, counts[1])
    return keep, read


def _left(values: Any, keep: Any, axis: int) -> Any:
    """What is kept of every row or column."""
    return (values * keep).sum(axis) / values.sum(axis)


def _kept(values: Any, count: int) -> Any:
    keep = np.ones(values.size, dtype=bool)
    keep[prune_order(values)[:count]] = False
    return keep.reshape(values.shape)


class Coupled(Bench):
    """Couples the plans of magnitudes; the others stay as they are."""

    power = 0.5

    def plan(self, method: Any, target: float, seed: int) -> Plan:
        made = super().plan(method, target, seed)
        if method.name != COUPLED:
            return made
        squares = {part.layer.name: part.scores.astype(np.float64) ** 2 for part in made.layers}
        masks = made.masks
        for name in [name for name in masks if name.endswith(".conv1")]:
            other = name.removesuffix("1") + "2"
            counts = int((~masks[name]).sum()), int((~masks[other]).sum())
            pair = coupled(squares[name], squares[other], counts, self.power)
            masks[name], masks[other] = pair
        parts = (replace(part, keep=masks[part.layer.name]) for part in made.layers)
        return replace(made, layers=tuple(parts))


if __name__ == "__main__":
    if "--coupling" in sys.argv:
        place = sys.argv.index("--coupling")
        Coupled.power = float(sys.argv[place + 1])
        del sys.argv[place : place + 2]
    comparing.Bench = Coupled  # type: ignore[misc]
    ask(f"coupled-{Coupled.power:g}", METHODS, "--stages", "repaired", targets="0.7,0.8")

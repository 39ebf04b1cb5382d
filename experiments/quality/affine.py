"""How long a step for the logits, and how strongly pulled? Scales and shifts after repair.

Repair ends with it (``snacs.network.logits``); here with other ridges and lengths.
"""

from __future__ import annotations

import copy

import torch
from workbench import Workbench, answer

from snacs.network.logits import change_, derived, norms_of, solution
from snacs.network.masking import bake_

RIDGES = (0.3, 1.0, 3.0)
STEPS = (0.5, 1.0)


def ask(bench: Workbench, target: float) -> None:
    model = bench.masked(bench.plan(target), bench.magnitudes(bench.dense))
    bench.repair(model, logits=False)
    bake_(model)
    model.eval()
    bench.show(f"{target:.0%}, repaired", model)
    batches = list(bench.job.calibration.batches)
    with torch.no_grad():
        wanted = [bench.dense.eval()(x) for x, _ in batches]
    gram, right, rows = derived(model, norms_of(model), batches, wanted)
    for ridge in RIDGES:
        solved = solution(gram / rows, right / rows, ridge)
        for step in STEPS:
            moved = copy.deepcopy(model)
            change_(norms_of(moved), step * solved)
            bench.show(f"{target:.0%}, ridge {ridge:g}, step {step:g}", moved)


if __name__ == "__main__":
    answer(ask, __doc__)

"""How closely should repair fit its images? The ridge, which pulls weights to their old values.

The default's masks, repaired with one ridge after another.
"""

from __future__ import annotations

import copy

from workbench import Workbench, answer

from snacs.network.masking import apply_

RIDGES = (1e-3, 1e-2, 3e-2, 0.1, 0.3)


def ask(bench: Workbench, target: float) -> None:
    plan = bench.plan(target)
    for ridge in RIDGES:
        model = copy.deepcopy(bench.dense)
        apply_(model, plan.masks, structure=plan.structure)
        report = bench.repair(model, ridge=ridge)
        bench.show(f"{target:.0%}, ridge {ridge:g}, KL of its own images {report.after:.4f}", model)


if __name__ == "__main__":
    answer(ask, __doc__, targets="0.6,0.7")

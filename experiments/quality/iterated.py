"""Is it better to prune and repair in some steps than at once? Magnitudes of repaired weights.

Each round takes the smallest kernels of the network as it was repaired last, up to a share of what
the default takes of every layer, and repairs what is left; no gradients.
"""

from __future__ import annotations

from workbench import Workbench, answer

SCHEDULES = ((1.0,), (0.6, 0.85, 1.0))


def ask(bench: Workbench, target: float) -> None:
    plan = bench.plan(target)
    for schedule in SCHEDULES:
        model = None
        for share in schedule:
            counts = {
                part.layer.name: int(share * (part.layer.connections - part.kept))
                for part in plan.layers
            }
            scores = bench.magnitudes(bench.dense if model is None else model)
            model = bench.keeping(scores, counts, start=model)
            bench.repair(model, batchnorm=share == 1.0)
        bench.show(f"{target:.0%}, in {len(schedule)} rounds", model)


if __name__ == "__main__":
    answer(ask, __doc__)

"""How far should a score believe its calibration images? Doubt, from none to much.

For every doubt, masks of the default's sizes are chosen layer after layer: for repair, which then
follows, and with ``--unrepaired`` for none: then only BatchNorm is measured again, and both scores
that know doubt are asked.
"""

from __future__ import annotations

import itertools

from workbench import Workbench, answer

from snacs.network.choosing import sequential_scores
from snacs.scores.doubt import doubting
from snacs.scores.information import information
from snacs.scores.surgeon import surgeon

SCORES = (surgeon, information)
DOUBTS = (0.0, 0.3, 1.0, 3.0)


def ask(bench: Workbench, target: float, *, unrepaired: bool) -> None:
    repaired = not unrepaired
    plan = bench.plan(target)
    for score, doubt in itertools.product(SCORES[:1] if repaired else SCORES, DOUBTS):
        scores, _ = sequential_scores(
            bench.dense,
            bench.job.calibration.batches,
            plan.masks,
            structure=plan.structure,
            score=doubting(score, doubt),
            importance=bench.importance,
            protected={},
            least_squares=repaired,
        )
        model = bench.masked(plan, scores)
        bench.repair(model, least_squares=repaired)
        bench.show(f"{target:.0%}, {score.__name__}, doubt {doubt:g}", model)
    model = bench.masked(plan, bench.magnitudes(bench.dense))
    bench.repair(model, least_squares=repaired)
    bench.show(f"{target:.0%}, magnitudes", model)


if __name__ == "__main__":
    answer(ask, __doc__, targets="0.7,0.8", unrepaired="for networks that are used as they are cut")

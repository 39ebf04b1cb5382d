"""Should a short retraining go all the way? Means of its start and its end, at several rates.

The recipe ``brief`` goes half of it (``snacs.training.start``); here with other rates and shares.
"""

from __future__ import annotations

import copy

from workbench import Workbench, answer

from snacs.network.masking import apply_
from snacs.training import recipe, train_
from snacs.training.start import drawn_back_, floating

RATES = (0.01, 0.03)
SHARES = (0.75, 0.5, 0.25)


def ask(bench: Workbench, target: float, *, longer: bool = False) -> None:
    plan = bench.plan(target)
    model = copy.deepcopy(bench.dense)
    apply_(model, plan.masks, structure=plan.structure)
    bench.repair(model)
    start = floating(model)
    bench.show(f"{target:.0%}, repaired", model)
    for rate in RATES:
        brief = recipe(
            "brief", learning_rate=rate, start_share=0.0, epochs=3 if longer else 1,
            channels_last=True,
        )  # fmt: skip
        trained = copy.deepcopy(model)
        train = bench.material.train(bench.seed, brief.batch)
        train_(trained, train, recipe=brief, teacher=bench.dense, seed=bench.seed)
        bench.show(f"{target:.0%}, rate {rate:g}", trained)
        for share in SHARES:
            mean = copy.deepcopy(trained)
            drawn_back_(mean, start, share)
            bench.show(f"{target:.0%}, rate {rate:g}, {share:g} of the start", mean)


if __name__ == "__main__":
    answer(ask, __doc__, longer="train for three epochs instead of one")

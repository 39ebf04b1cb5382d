"""How far each layer is pruned so that the whole network meets its goal.

The target τ is a fraction of all Conv and Linear weights (or MACs), kept layers included:

    τ = Σ_l β(l) · γ(l),   β(l) = the layer's share of the budget.
"""

from __future__ import annotations

from collections.abc import Mapping

from snacs.config import Config, Goal
from snacs.limits.filters import allocate_filters
from snacs.limits.ladders import Ladder, ScoreThreshold, last_step, make_ladder
from snacs.limits.task import Allocation, Task, check_goal, make_task, needed, unreachable
from snacs.values import BoolArray, Curve, FloatArray, IntArray, Structure


def allocate(
    structure: Structure,
    scores: Mapping[str, FloatArray],
    curves: Mapping[str, Curve],
    protected: Mapping[str, BoolArray],
    goal: Goal,
    config: Config,
) -> Allocation:
    """Connections to prune of every prunable layer.

    ``config.allocation`` "svm" cuts all curves at one accuracy, "uniform" takes the same fraction
    of every layer, "global" cuts all scores at one value, "tempered" lies between these two,
    "manual" takes ``config.limits``. Each is a ladder of nested steps
    (:mod:`snacs.limits.ladders`). The target is met within one connection: of the layers that rise
    with the last step, in order of the forward pass, the one that crosses the target is scaled
    back. Counts are monotone in the target.

    Every layer keeps 1 % of its connections and at least one; limits are capped at 1 − the
    protected share. A score threshold (δ) holds back what scores above it; the target is met with
    what remains. Without a target, ``goal.tolerance`` sets the accuracy to cut at, manual limits
    stand as they are, and a score threshold alone prunes all that lies at or below it.

    Parameters
    ----------
    scores : (c_out, c_in) by name of the prunable layers; low goes first.
    curves : by name, each measured with the layer's ``protected`` rows; only for "svm".
    protected : (c_out,) by name; layers that are not named protect nobody.

    Raises
    ------
    TargetError
        If the target cannot be reached; says how far one can go and why.
    InputError
        If goal and allocation contradict each other, or an option names no prunable layer.
    """
    check_goal(goal, config)
    if config.granularity == "filter":
        return allocate_filters(structure, scores, curves, protected, goal=goal, config=config)
    task = make_task(structure, scores, protected, goal.budget)
    ladder = make_ladder(task, curves, config)
    holder = ScoreThreshold(task, config)
    if goal.target is None:
        step = last_step(ladder, goal)
        counts = holder.hold(ladder.limits(step))
    else:
        step, counts = _meet(task, ladder, holder, goal, config)
    top = ladder.limits(step)
    limits = (top if holder.active else counts) / task.sizes
    names = [layer.name for layer in task.layers]
    return Allocation(
        counts={name: int(count) for name, count in zip(names, counts, strict=True)},
        limits={name: float(limit) for name, limit in zip(names, limits, strict=True)},
        threshold=ladder.threshold(step),
        delta=holder.in_force(ladder, step),
        reached=task.worth(counts) / task.total,
    )


def _meet(
    task: Task, ladder: Ladder, holder: ScoreThreshold, goal: Goal, config: Config
) -> tuple[int, IntArray]:
    """The first step that reaches the target, and its counts with the last layer scaled back."""
    wanted = needed(task, goal.target or 0.0)
    low, high = 0, ladder.steps
    most = task.worth(holder.hold(ladder.limits(high)))
    if most < wanted:
        raise unreachable(task, goal, config, most / task.total)
    while low < high:
        middle = (low + high) // 2
        if task.worth(holder.hold(ladder.limits(middle))) >= wanted:
            high = middle
        else:
            low = middle + 1
    upper = holder.hold(ladder.limits(high))
    counts = holder.hold(ladder.limits(max(high - 1, 0)))
    for index in range(len(counts)):
        missing = wanted - task.worth(counts)
        if missing <= 0:
            break
        unit = int(task.units[index])
        counts[index] += min(int(upper[index] - counts[index]), -(-missing // unit))
    return high, counts

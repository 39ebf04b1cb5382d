"""Plain words: why a layer was pruned as far as it was, and whether to trust its scores."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from snacs.plans import Plan
from snacs.values import Curve, LayerPlan

FEW = 0.5
"""Below this fraction of informative samples an estimate is mostly noise of the hash."""
MOST = 0.8
"""Above it nearly all samples take part."""


def bar_of(plan: Plan, curve: Curve) -> float | None:
    """The SVM accuracy that this layer has to keep: the threshold, in the layer's own terms."""
    if plan.threshold is None:
        return None
    if plan.config.reading == "absolute":
        return plan.threshold
    return plan.threshold * min(curve.base, plan.config.cap)


def reasons(plan: Plan, part: LayerPlan) -> list[str]:
    """Why this layer loses what it loses, one sentence each."""
    found = [_limit(plan, part)]
    gone = part.pruned
    if (part.limit - gone) * part.layer.connections > 1 - 1e-6:
        held = f" (those above {plan.delta:.4g} stay)" if plan.delta is not None else ""
        found.append(f"{gone:.1%} went: fewer connections than the limit allows{held}.")
    if plan.config.exchange:
        found.append(
            "Which ones go was settled by exchanging some on many images, by what they do to the "
            "outputs: a score is a place in the order of this layer."
        )
    protected = int(part.protected.sum())
    if protected:
        filters = "filter is" if protected == 1 else "filters are"
        few = "" if protected == 1 else f"{protected} "
        better = plan.config.protect == {} and part.curve is not None
        why = ": with them whole the SVM read the layer better" if better else ""
        found.append(f"Its {few}most sensitive {filters} protected{why}.")
    dead = int(part.dead.sum())
    if dead:
        found.append(
            f"{dead} of {part.layer.c_out} filters lost all connections and can be removed."
        )
    return found


def _limit(plan: Plan, part: LayerPlan) -> str:
    how = plan.config.allocation
    if how == "uniform":
        return f"Every layer may lose the same share: {part.limit:.1%}."
    if how == "global":
        return "One score threshold for the whole network decides; no layer has a limit of its own."
    if how == "tempered":
        return (
            f"{part.limit:.1%} may go: between the same share of every layer and what one score "
            "threshold for the whole network would take here."
        )
    if how == "manual":
        return f"The limit of {part.limit:.1%} was given by hand."
    curve = part.curve
    bar = None if curve is None else bar_of(plan, curve)
    if curve is None or bar is None:
        return f"At most {part.limit:.1%} may go."
    known = curve.accuracy[np.isfinite(curve.accuracy)]
    if part.limit == 0:
        best = f"{known.max():.1%}" if len(known) else "nothing"
        return (
            f"Nothing may go: pruned by even one level, an SVM reads the classes from this layer "
            f"at {best} or less, below the {bar:.1%} that is asked of it."
        )
    level = int(np.clip(round(part.limit * 100), 1, len(curve.accuracy)))
    return (
        f"Up to {part.limit:.1%} may go: an SVM then still reads the classes from this layer at "
        f"{curve.accuracy[level - 1]:.1%} (dense {curve.base:.1%}, at least {bar:.1%} is asked)."
    )


def trust(occupancy: Mapping[str, float]) -> tuple[str, str]:
    """("good" | "fair" | "poor" | "none", a sentence) from what the estimator says of its cells."""
    if "informative" not in occupancy:
        return "none", "This score counts nothing in cells, so there is nothing to doubt here."
    share = occupancy["informative"]
    alone = occupancy.get("singletons", 0.0)
    if share >= MOST:
        return "good", f"{share:.0%} of the samples fall into cells where they can be compared."
    if share >= FEW:
        return "fair", (
            f"Only {share:.0%} of the samples fall into cells where they can be compared: trust "
            "the order of clearly different scores, not of close ones."
        )
    return "poor", (
        f"Do not trust these scores: only {share:.0%} of the samples fall into cells where they "
        f"can be compared ({alone:.0%} are alone in theirs), the rest is noise of the hash. More "
        "images, a larger 'width' or fewer 'directions' help."
    )

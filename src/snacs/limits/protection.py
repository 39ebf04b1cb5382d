"""Which filters must not be touched: sensitivity, the protected share, and when to protect.

    λ(i) = Σ_f  W̃(f, i) / Σ_p W̃(f, p)

over the filters f of the layers that read filter i; W̃ are their weights averaged over the kernel.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from snacs.config import check_choice
from snacs.connections import count_at
from snacs.errors import InputError
from snacs.values import BoolArray, Curve, FloatArray, Layer

MODES = ("absolute", "signed", "minmax")
_SMALLEST = 1e-6  # of Σ|W̃|: a signed sum nearer to zero than this is cancellation, not a size


def sensitivity(
    layer: Layer, consumers: Sequence[tuple[Layer, FloatArray]], mode: str = "absolute"
) -> FloatArray:
    """Sensitivity (λ) of a layer's filters: their share in what the next layers add up.

    Consumer channels are matched to filters by the consumers' ``feeds``: offsets of a concat,
    padded shortcuts and groups are followed, and several consumers (residual) are summed.

    Parameters
    ----------
    consumers : of (layer, weight (c_out, c_in, kernel)), every layer that reads the output.
    mode : "absolute" averages |weights|. "signed" is the formula as printed; its denominator can
        vanish, so it is kept at least 1e-6 · Σ|W̃| away from zero, sign unchanged. "minmax"
        rescales a consumer's weights to [0, 1] first, as the authors' programs do.

    Returns
    -------
    (c_out,) sensitivity; zeros if no consumer is known, and then nobody is protected.
    """
    check_choice("sensitivity", mode, MODES)
    total = np.zeros(layer.c_out)
    for consumer, weight in consumers:
        expected = (consumer.c_out, consumer.c_in, consumer.kernel)
        if np.shape(weight) != expected:
            raise InputError(
                f"The weight of layer {consumer.name!r} must have the shape (c_out, c_in, kernel) "
                f"= {expected}. Got {np.shape(weight)}."
            )
        parts = _parts(np.asarray(weight, dtype=np.float64), mode)
        by_channel = np.bincount(
            consumer.channel_of().ravel(), weights=parts.ravel(), minlength=consumer.channels
        )
        for segment in consumer.feeds:
            if segment.source == layer.name:
                filters = slice(segment.first, segment.first + segment.length)
                total[filters] += by_channel[segment.start : segment.start + segment.length]
    return total


def protected_rows(sensitivity: FloatArray, share: float) -> BoolArray:
    """The ⌊share · filters⌋ most sensitive filters, equal ones by index.

    >>> protected_rows(np.array([0.1, 0.4, 0.4, 0.2]), 0.5)
    array([False,  True,  True, False])
    """
    if not 0 <= share < 1:
        raise InputError(f"A protected share must lie in [0, 1). Got {share!r}.")
    values = np.asarray(sensitivity)
    if not np.isfinite(values).all():
        raise InputError("Sensitivities must be finite. Check the weights of the next layers.")
    rows = np.zeros(len(values), dtype=bool)
    if values.any():  # all zero: nobody is known to read this layer
        count = count_at(share, len(values))
        rows[np.argsort(-values, kind="stable")[:count]] = True
    return rows


def choose_share(curves: Sequence[Curve], limit: float) -> Curve:
    """The curve to use: protected where that reads better at the same pruning level.

    Parameters
    ----------
    curves : of one layer; the first without protection.
    limit : the layer's limit (γ) as the first curve gave it. Accuracies are compared at the lowest
        measured level that is not below it.

    Returns
    -------
    The curve with the highest accuracy there if it is strictly above the unprotected one, the
    smaller share among equals; else the first. Shares that cannot reach the level are no choice.
    """
    best = curves[0]
    places = np.flatnonzero(best.levels >= limit - 1e-9)
    if limit <= 0 or not len(places):
        return best
    place = places[0]
    for curve in sorted(curves[1:], key=lambda curve: curve.share):
        if curve.accuracy[place] > best.accuracy[place]:  # False for NaN, which is out of reach
            best = curve
    return best


def _parts(weight: FloatArray, mode: str) -> FloatArray:
    """(c_out, c_in) W̃(f, p) / Σ_p W̃(f, p) of one consumer; 0 for a filter without weights."""
    if mode == "absolute":
        weight = np.abs(weight)
    elif mode == "minmax":
        low, high = weight.min(), weight.max()
        weight = (weight - low) / (high - low) if high > low else np.ones_like(weight)
    average = weight.mean(axis=2)
    sums = average.sum(axis=1, keepdims=True)
    smallest = _SMALLEST * np.abs(average).sum(axis=1, keepdims=True)
    guarded = np.where(sums < 0, -1.0, 1.0) * np.maximum(np.abs(sums), smallest)
    parts: FloatArray = np.divide(average, guarded, out=np.zeros_like(average), where=guarded != 0)
    return parts

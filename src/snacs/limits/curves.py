"""SVM accuracy curves: how much a layer's filters still say after it has been pruned.

α(l, c) is the accuracy of an SVM that was trained on the unpruned layer's features with the true
labels, on the features of the same samples after the layer has lost c % of its connections.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from snacs.config import Config
from snacs.connections import check_scores, prune_order
from snacs.errors import InputError
from snacs.limits import svm
from snacs.limits.features import pruned_features, unpruned_features
from snacs.values import BoolArray, Curve, Evidence, FloatArray, IntArray

LEVELS = np.arange(1, 100)
"""Pruning levels in percent of all connections of a layer."""


def measure_curves(
    evidence: Evidence,
    scores: FloatArray,
    *,
    protections: Sequence[tuple[float, BoolArray]],
    config: Config,
    seed: int,
) -> list[Curve]:
    """One curve per protected share, all from one SVM fit.

    At level c the ⌊c/100 · connections⌋ lowest-scored connections outside protected rows go,
    counted from *all* connections of the layer and ordered by (score, index), so that levels are
    nested. Levels that would need protected connections cannot be reached: there the accuracy is
    NaN, which is below every threshold.

    Features, kernel and predictions are exact to float64 rounding (see :mod:`snacs.limits.svm`):
    predictions equal ``SVC.predict`` wherever |decision| > 1e-9. The one-vs-one SVM of k classes
    has k(k−1)/2 machines, so with more than ``config.classes`` classes that many are drawn by
    ``seed`` and only their images are used: that keeps 1000 classes tractable. ``config.cap``
    belongs to the reading of a curve, not to the curve.

    Parameters
    ----------
    evidence : of the layer; ``window_means``, ``labels``, ``weight`` and ``bias`` are used.
    scores : (c_out, c_in)
    protections : of (share, protected rows (c_out,)); first (0.0, nobody).
    seed : draws classes where there are too many. Use one seed for all layers.
    """
    layer = evidence.layer
    samples, labels = _training_set(evidence, classes=config.classes, seed=seed)
    dense = unpruned_features(evidence, samples)
    if not np.isfinite(dense).all():
        raise InputError(
            f"The outputs of layer {layer.name!r} are NaN or infinite. Check its weights and the "
            "calibration images, or leave it out with 'ignore'."
        )
    machine = svm.fit(dense, labels)
    base = float(np.mean(svm.predict(machine, dense) == labels))
    curves: list[Curve] = []
    measured: dict[bytes, FloatArray] = {}
    for share, rows in protections:
        check_scores(layer, scores, rows)
        key = np.packbits(rows).tobytes()
        if key not in measured:  # small layers: a share may protect nobody more
            order = prune_order(scores, rows)
            measured[key] = _accuracy(evidence, order, samples, labels, machine)
        curves.append(
            Curve(levels=LEVELS / 100, accuracy=measured[key].copy(), base=base, share=share)
        )
    return curves


def _accuracy(
    evidence: Evidence,
    order: IntArray,
    samples: IntArray,
    labels: IntArray,
    machine: svm.Machine,
) -> FloatArray:
    """Accuracy at each level; NaN where the level needs more connections than ``order`` has."""
    layer = evidence.layer
    counts = LEVELS * layer.connections // 100
    reached = counts <= len(order)
    accuracy = np.full(len(LEVELS), np.nan)
    if not reached.any():
        return accuracy
    # Levels of small layers may take equally many; they are measured once.
    steps, place = np.unique(counts[reached], return_inverse=True)
    gone_at = np.full(layer.connections, len(steps))
    gone_at[order] = np.searchsorted(steps, np.arange(len(order)), side="right")
    table = gone_at.reshape(layer.c_out, layer.c_in)
    right = np.zeros(len(steps))
    for block, features in pruned_features(evidence, samples, table, len(steps)):
        winners = svm.predict(machine, features.reshape(-1, layer.c_out))
        right += (winners.reshape(len(steps), -1) == labels[block]).sum(axis=1)
    accuracy[reached] = (right / len(labels))[place]
    return accuracy


def _training_set(evidence: Evidence, *, classes: int, seed: int) -> tuple[IntArray, IntArray]:
    """Indices of the images that are used, and their labels as 0 … classes − 1."""
    labels = np.asarray(evidence.labels)
    name = evidence.layer.name
    if labels.ndim != 1 or len(labels) != len(evidence.window_means):
        raise InputError(
            f"Layer {name!r} has {len(evidence.window_means)} images but labels of shape "
            f"{labels.shape}. One label per image is needed."
        )
    present = np.unique(labels)
    if len(present) < 2:
        raise InputError(
            f"The accuracy curve of layer {name!r} needs calibration images of at least two "
            f"classes. Got {len(present)}. Give images of more classes, or choose "
            "allocation='uniform'."
        )
    if len(present) > classes:
        generator = np.random.default_rng(seed)
        present = np.sort(generator.choice(present, size=classes, replace=False))
    samples = np.flatnonzero(np.isin(labels, present))
    return samples, np.searchsorted(present, labels[samples])

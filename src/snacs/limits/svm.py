"""An RBF support vector machine that is fitted once and then asked very often.

scikit-learn's ``SVC`` (C = 1, gamma = "scale") does the fitting (``fitting``); its ``predict``
evaluates one kernel value after the other. Here all kernel values of many samples are one matrix
product, and the decisions of all pairs of classes one product per class.

Exactness. A first pass runs in float32 and bounds its own rounding. Samples whose winner could
change within that bound (some pair of classes is too close to call) are decided again in float64.
Predictions therefore equal ``SVC.predict`` wherever every |decision| exceeds 1e-9.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from snacs.limits.fitting import fit_svc
from snacs.limits.kernels import count_votes, narrow_rows
from snacs.values import FloatArray, IntArray

_ROWS = 1024  # samples per product: their kernel values stay near the cache
_SAFETY = 32.0  # rounding steps allowed per kernel value and per sum; 1 to 4 are seen


@dataclass(frozen=True, eq=False)
class Machine:
    """A fitted one-vs-one SVM, laid out for matrix products.

    Attributes
    ----------
    support : (support vectors, features + 2)
        √(2·gamma)·(s − centre), 1, −gamma·|s − centre|²: the product with a sample's row
        √(2·gamma)·(f − centre), −gamma·|f − centre|², 1 is the exponent −gamma·|f − s|².
        Distances do not change with the centre, but cancellation does.
    coefficients : one (support vectors of the class, classes − 1) array per class
    weights : (pairs,) sum of the absolute coefficients of a pair: how far rounding can move it.
    """

    classes: int
    gamma: float
    centre: FloatArray
    support: FloatArray
    coefficients: tuple[FloatArray, ...]
    intercepts: FloatArray
    weights: FloatArray

    @property
    def pairs(self) -> tuple[IntArray, IntArray]:
        """First and second class of every pair, in libsvm's order."""
        first, second = np.triu_indices(self.classes, 1)
        return first, second


def fit(features: FloatArray, labels: IntArray) -> Machine:
    """Fit scikit-learn's default SVC. ``labels`` are class indices 0 … classes − 1, all present.

    gamma = "scale" is 1 / (features · variance), and 1 where the variance is zero.
    """
    features = np.asarray(features, dtype=np.float64)
    variance = float(features.var())
    gamma = 1.0 / (features.shape[1] * variance) if variance != 0 else 1.0
    svc = fit_svc(features, labels, gamma)
    classes = len(svc.classes_)
    # For two classes scikit-learn turns libsvm's signs round; turn them back.
    sign = -1.0 if classes == 2 else 1.0
    centre = features.mean(axis=0)
    ends = np.cumsum(svc.n_support_)
    by_class = np.split(np.ascontiguousarray(sign * svc.dual_coef_.T), ends[:-1])
    totals = [np.abs(block).sum(axis=0) for block in by_class]
    first, second = np.triu_indices(classes, 1)
    weights = [totals[i][j - 1] + totals[j][i] for i, j in zip(first, second, strict=True)]
    return Machine(
        classes=classes,
        gamma=gamma,
        centre=centre,
        support=_rows(features[svc.support_], centre, gamma, support=True),
        coefficients=tuple(by_class),
        intercepts=sign * svc.intercept_,
        weights=np.array(weights),
    )


def predict(machine: Machine, features: FloatArray) -> IntArray:
    """Class index of every sample (rows of ``features``, float64).

    Every pair of classes votes; most votes win, and among equals the lowest index, as in libsvm.
    """
    narrow = machine.support.astype(np.float32)
    coefficients = [block.astype(np.float32) for block in machine.coefficients]
    radius = np.sqrt(np.max(-machine.support[:, -1], initial=0.0))
    winners = np.empty(len(features), dtype=np.intp)
    room = np.empty((min(_ROWS, len(features)), narrow.shape[1]), dtype=np.float32)
    for start in range(0, len(features), _ROWS):
        some = features[start : start + _ROWS]
        rows, sizes = room[: len(some)], np.empty(len(some))
        narrow_rows(some, machine.centre, np.sqrt(2.0 * machine.gamma), rows, sizes)
        decision = _decisions(machine, rows, narrow, coefficients)
        chosen, sure = _vote(machine, decision, _bound(machine, np.sqrt(sizes), radius))
        doubt = np.flatnonzero(~sure)
        if len(doubt):
            rows = _rows(some[doubt], machine.centre, machine.gamma)
            exact = _decisions(machine, rows, machine.support, list(machine.coefficients))
            chosen[doubt], _ = _vote(machine, exact, np.zeros_like(exact))
        winners[start : start + _ROWS] = chosen
    return winners


def _rows(
    samples: FloatArray, centre: FloatArray, gamma: float, *, support: bool = False
) -> FloatArray:
    """Rows whose product with support rows is the exponent of the kernel, in float64."""
    count, width = samples.shape
    rows = np.empty((count, width + 2))
    np.subtract(samples, centre, out=rows[:, :width])
    rows[:, :width] *= np.sqrt(2.0 * gamma)
    size = np.einsum("nd,nd->n", rows[:, :width], rows[:, :width])
    rows[:, width + support] = -0.5 * size
    rows[:, width + 1 - support] = 1.0
    return rows


def _decisions(
    machine: Machine, rows: FloatArray, support: FloatArray, coefficients: list[FloatArray]
) -> FloatArray:
    """(samples, pairs) decision values; positive is a vote for the first class of the pair."""
    kernel = rows @ support.T
    np.exp(kernel, out=kernel)
    sums = np.empty((machine.classes, len(rows), machine.classes - 1), dtype=kernel.dtype)
    start = 0
    for index, block in enumerate(coefficients):
        np.matmul(kernel[:, start : start + len(block)], block, out=sums[index])
        start += len(block)
    first, second = machine.pairs
    values: FloatArray = (sums[first, :, second - 1] + sums[second, :, first]).T
    return values + machine.intercepts.astype(kernel.dtype)


def _bound(machine: Machine, length: FloatArray, radius: float) -> FloatArray:
    """(samples, pairs) bound on the rounding of the float32 pass.

    The exponent is a sum of terms up to (|f| + |s|)², each rounded; its error multiplies a kernel
    value, which is at most exp(−(|f| − |s|)²) beyond the support vectors (``length`` |f| and
    ``radius`` |s| are in units of 1/√gamma). Summing the kernel values rounds again.
    """
    nearest = np.exp(-(np.maximum(length - radius, 0.0) ** 2))
    error = 1.0 + nearest * (length + radius) ** 2
    step = _SAFETY * float(np.finfo(np.float32).eps)
    bound: FloatArray = step * np.outer(error, machine.weights)
    return bound + step * np.abs(machine.intercepts)


def _vote(
    machine: Machine, decision: FloatArray, bound: FloatArray
) -> tuple[IntArray, np.ndarray[tuple[int], np.dtype[np.bool_]]]:
    """Winners, and whether they win whichever way decisions within ``bound`` fall."""
    winners, sure = np.empty(len(decision), np.intp), np.empty(len(decision), np.bool_)
    count_votes(decision, bound, machine.classes, winners, sure)
    return winners, sure

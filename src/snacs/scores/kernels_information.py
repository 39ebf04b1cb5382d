"""The compiled elimination of :mod:`snacs.scores.information`, filter by filter."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from snacs.scores.kernels import compiled

FloatMatrix = NDArray[np.float64]


@compiled
def eliminate(
    covariance: NDArray[np.float64], cross: FloatMatrix, power: NDArray[np.float64]
) -> tuple[NDArray[np.int64], FloatMatrix]:
    """Order of removal and target variance left unexplained after each, (filters, c_in) both.

    ``covariance`` (filters, c_in, c_in) is of the kernels' contributions, ``cross`` (filters, c_in)
    between them and the target, ``power`` (filters,) the target's variance. O(c_in²) per filter:
    sums over the kept contributions are updated, not taken again.
    """
    filters, count = cross.shape
    order = np.empty((filters, count), dtype=np.int64)
    loss = np.empty((filters, count))
    for i in range(filters):
        table = covariance[i]
        kept = np.ones(count, dtype=np.bool_)
        share = np.zeros(count)  # of each contribution with the sum of the kept ones
        variance, explained = 0.0, 0.0
        for j in range(count):
            for k in range(count):
                share[j] += table[j, k]
            variance += share[j]
            explained += cross[i, j]
        floor = 1e-12 * power[i]
        for step in range(count):
            best, chosen = np.inf, -1
            for j in range(count):
                if kept[j]:
                    left = variance - 2.0 * share[j] + table[j, j]
                    common = explained - cross[i, j]
                    value = power[i]
                    if left > floor and common > 0.0:
                        value -= common * common / left
                    if value < best:
                        best, chosen = value, j
            if chosen < 0:  # NaN; callers have checked, so this cannot be reached with numbers
                break
            variance += table[chosen, chosen] - 2.0 * share[chosen]
            explained -= cross[i, chosen]
            kept[chosen] = False
            for k in range(count):
                share[k] -= table[k, chosen]
            order[i, step] = chosen
            loss[i, step] = best
    return order, loss

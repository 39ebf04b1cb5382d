"""How much a filter still knows about its dense output as its kernels go, one after the other.

A filter's output is the sum of its kernels' contributions u_j = w_j · x_j. Let T be the output
that the dense network has there (or the output wanted there, see ``snacs.network.choosing``) and
S = Σ u_j over the kept kernels. BatchNorm, measured again, removes offset and scale, so what counts
is their correlation ρ. For Gaussian T and S

    I(T; S) = −½ log(1 − ρ²),    ρ² = cov(T, S)² / (var T · var S),

and the variance of T that S leaves unexplained is var T · (1 − ρ²). Kernels are removed greedily:
always the one whose loss leaves the most information. Unlike a score per kernel this sees that two
kernels say the same, or cancel. Only second moments are needed: the covariance of the layer's input
windows and their covariance with T.

A kernel's score is the unexplained variance that its removal adds, times the importance of the
filter: the expected squared change of the logits per unit of squared change of its output. All
scores of a network are thereby in one unit (squared logits) and can be cut at one value. The curve
of a filter need not be convex (two kernels that cancel cost little together and much one by one),
so scores are the slopes of its greatest convex minorant: kernels that only make sense together
score the same and go together.
"""

from __future__ import annotations

import itertools

import numpy as np
from numpy.typing import NDArray

from snacs.config import Config
from snacs.scores.kernels_information import eliminate
from snacs.scores.parallel import map_threads
from snacs.values import Evidence, FloatArray, Layer

Floats = NDArray[np.float64]

# Bytes of contribution covariances that are held at one time by one thread.
BLOCK = 1 << 27


def score_information(
    evidence: Evidence, _config: Config, _rng: np.random.Generator, threads: int
) -> tuple[Floats, dict[str, float]]:
    """Scores of one layer against its own dense output, from the sampled windows."""
    layer = evidence.layer
    values = np.empty((layer.c_out, layer.c_in))
    importance = np.ones(layer.c_out) if evidence.importance is None else evidence.importance
    for group in range(layer.groups):
        channels = slice(group * layer.c_in, (group + 1) * layer.c_in)
        mine = rows_of(layer, group)
        windows = np.asarray(evidence.windows[:, channels]).reshape(len(evidence.windows), -1)
        centred = windows - windows.mean(axis=0, dtype=np.float64).astype(windows.dtype)
        covariance = (centred.T @ centred).astype(np.float64) / len(centred)
        weight = np.asarray(evidence.weight[mine], dtype=np.float64)
        values[mine] = information(
            weight, covariance, importance=np.asarray(importance[mine]), threads=threads
        )
    return values, {}


def information(
    weight: FloatArray,
    covariance: Floats,
    *,
    importance: FloatArray,
    cross: Floats | None = None,
    power: Floats | None = None,
    threads: int = 1,
) -> Floats:
    """(filters, c_in) scores; low goes first.

    Parameters
    ----------
    weight : (filters, c_in, kernel)
    covariance : (c_in·kernel, c_in·kernel) of the input windows
    importance : (filters,) what squared change of each output is worth
    cross : (filters, c_in·kernel) covariance of the windows with each filter's target; None: the
        target is the filter's own output
    power : (filters,) variance of the targets; None: of the filter's own output

    Examples
    --------
    The first input says nothing new once the other two are kept: it is their sum.

    >>> x = np.array([[1, 1, 0], [-1, 0, -1], [1, 0, 1], [-1, -1, 0]])
    >>> table = x.T @ x / 4
    >>> scores = information(np.ones((1, 3, 1)), table, importance=np.ones(1))
    >>> int(scores.argmin())
    0
    """
    filters, count, size = weight.shape
    flat = np.asarray(weight, dtype=np.float64).reshape(filters, count * size)
    whole = flat @ covariance if cross is None else cross
    shared = (flat * whole).reshape(filters, count, size).sum(axis=2)
    total = (flat * whole).sum(axis=1) if power is None else power
    step = max(1, BLOCK // (8 * count * count))
    starts = range(0, filters, step)
    result = np.empty((filters, count))

    def work(start: int) -> None:
        some = slice(start, min(start + step, filters))
        table = contributions(weight[some], covariance)
        order, loss = eliminate(table, shared[some], total[some])
        base = _unexplained(table, shared[some], total[some])
        result[some] = slopes(order, loss - base[:, None]) * importance[some, None]

    map_threads(work, starts, threads=threads)
    return result


def contributions(weight: FloatArray, covariance: Floats) -> Floats:
    """(filters, c_in, c_in): covariance of the kernels' contributions, w_jᵀ Σ_jk w_k."""
    filters, count, size = weight.shape
    flat = np.ascontiguousarray(weight, dtype=np.float64).reshape(filters, count * size)
    if size == 1:
        return np.asarray(flat[:, :, None] * covariance * flat[:, None, :])
    result = np.empty((filters, count, count))
    for j in range(count):
        rows = slice(j * size, (j + 1) * size)
        seen = (flat[:, rows] @ covariance[rows]) * flat
        result[:, j] = seen.reshape(filters, count, size).sum(axis=2)
    return result


def _unexplained(table: Floats, shared: Floats, total: Floats) -> Floats:
    """(filters,) variance of the target that all kernels together leave unexplained."""
    variance, common = table.sum(axis=(1, 2)), shared.sum(axis=1)
    usable = (variance > 1e-12 * total) & (common > 0)
    safe = np.where(usable, variance, 1.0)
    return np.asarray(total - np.where(usable, common**2 / safe, 0.0))


def slopes(order: NDArray[np.int64], loss: Floats) -> Floats:
    """(filters, c_in) slope of the greatest convex minorant of each curve, by kernel.

    >>> slopes(np.array([[2, 0, 1]]), np.array([[3.0, 1.0, 4.0]]))
    array([[0.5, 3. , 0.5]])
    """
    filters, count = order.shape
    result = np.zeros((filters, count))
    for i in range(filters):
        height = np.concatenate([[0.0], np.maximum(loss[i], 0.0)])
        height = np.minimum.accumulate(height[::-1])[
            ::-1
        ]  # what costs less later costs no more now
        hull = [0]
        for point in range(1, count + 1):
            while len(hull) > 1 and _above(height, hull[-2], hull[-1], point):
                hull.pop()
            hull.append(point)
        for first, last in itertools.pairwise(hull):
            result[i, order[i, first:last]] = (height[last] - height[first]) / (last - first)
    return result


def _above(height: Floats, left: int, middle: int, right: int) -> bool:
    """Whether ``middle`` lies on or above the line from ``left`` to ``right``."""
    rise = (height[middle] - height[left]) * (right - middle)
    return bool(rise >= (height[right] - height[middle]) * (middle - left))


def eliminate_reference(covariance: Floats, cross: Floats, power: float) -> list[tuple[int, float]]:
    """One filter, one line per equation: (kernel removed, variance left unexplained) by step."""
    kept = list(range(len(cross)))
    steps = []
    while kept:
        losses = []
        for j in kept:
            rest = [k for k in kept if k != j]
            variance = covariance[np.ix_(rest, rest)].sum()
            common = cross[rest].sum()
            usable = variance > 1e-12 * power and common > 0
            losses.append(power - (common**2 / variance if usable else 0.0))
        lowest = int(np.argmin(losses))
        steps.append((kept.pop(lowest), float(losses[lowest])))
    return steps


def rows_of(layer: Layer, group: int) -> slice:
    """Output filters of one group."""
    rows = layer.c_out // layer.groups
    return slice(group * rows, (group + 1) * rows)

"""Compiled sums of what connections add to a layer's features, as connections go step by step.

Why compiled: a connection goes at a step of its own, so its part belongs to one row of a table that
no matrix product can address; numpy's way, adding rows by index, took most of a curve's time.
Serial, without the interpreter lock, cached on disk, as the kernels of the scores.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numpy as np

from snacs.limits.vectors import LANES, add_taps

F = TypeVar("F", bound=Callable[..., Any])

TILE = 8
"""Filters at a time: eight float64 of one sample fill a cache line of the features."""


def compiled(function: F) -> F:
    """No fast-math: results keep their order."""
    return cast(F, numba.njit(nogil=True, cache=True, error_model="numpy")(function))


@compiled
def sum_steps(
    means: Any, weight: Any, first_channel: Any, gone_at: Any, bias: Any, out: Any
) -> None:
    """ReLU of every filter's mean at every step, written to ``out`` (steps, samples, filters).

    Every connection's part goes into a row of its filter, that of the step at which it is gone;
    what a filter is at a step is the sum of all later rows.

    Parameters
    ----------
    means : (samples, channels, kernel) float64
    weight : (filters, columns, kernel) float64
    first_channel : (filters,) channel of a filter's column 0
    gone_at : (filters, columns) the first step at which a connection is gone
    bias : (filters,)
    """
    steps, samples, filters = out.shape
    channels, taps = means.shape[1:]
    near = np.zeros((channels, taps, LANES), np.float64)
    parts = np.empty((TILE, steps + 1, LANES), np.float64)
    for begin in range(0, samples, LANES):
        count = min(LANES, samples - begin)
        for channel in range(channels):
            for tap in range(taps):
                for lane in range(count):
                    near[channel, tap, lane] = means[begin + lane, channel, tap]
        for start in range(0, filters, TILE):
            size = min(TILE, filters - start)
            parts[:] = 0.0
            for column in range(gone_at.shape[1]):
                for index in range(size):
                    row = start + index
                    at = (first_channel[row] + column) * taps * LANES
                    first = (row * gone_at.shape[1] + column) * taps
                    place = (index * (steps + 1) + gone_at[row, column]) * LANES
                    add_taps(near, at, weight, first, taps, parts, place)
            for index in range(size):
                for lane in range(LANES):
                    parts[index, steps, lane] += bias[start + index]
            for step in range(steps - 1, -1, -1):
                for index in range(size):
                    for lane in range(LANES):
                        parts[index, step, lane] += parts[index, step + 1, lane]
                for lane in range(count):
                    for index in range(size):
                        value = parts[index, step + 1, lane]
                        out[step, begin + lane, start + index] = value if value > 0.0 else 0.0


@compiled
def narrow_rows(samples: Any, centre: Any, scale: Any, rows: Any, sizes: Any) -> None:
    """Rows of ``svm.Machine.support``'s kind in float32, and |row|² / 2 in float64."""
    count, width = samples.shape
    for sample in range(count):
        size = 0.0
        for feature in range(width):
            value = (samples[sample, feature] - centre[feature]) * scale
            rows[sample, feature] = value
        for feature in range(width):
            value = np.float64(rows[sample, feature])
            size += value * value
        sizes[sample] = 0.5 * size
        rows[sample, width] = -0.5 * size
        rows[sample, width + 1] = 1.0


@compiled
def count_votes(decision: Any, bound: Any, classes: int, winners: Any, sure: Any) -> None:
    """Winners, and whether they win whichever way decisions within ``bound`` fall.

    ``decision`` and ``bound`` are (samples, pairs). Most votes win, among equals the lowest class.
    """
    votes, unsure = np.empty(classes, np.int64), np.empty(classes, np.int64)
    lost = np.empty(classes, np.int64)
    for sample in range(len(decision)):
        votes[:] = 0
        unsure[:] = 0
        lost[:] = 0
        pair = 0
        for first in range(classes):
            for second in range(first + 1, classes):
                value = decision[sample, pair]
                chosen = first if value > 0 else second
                votes[chosen] += 1
                if abs(value) <= bound[sample, pair]:
                    unsure[first] += 1
                    unsure[second] += 1
                    lost[chosen] += 1
                pair += 1
        winner = 0
        for class_ in range(1, classes):
            if votes[class_] > votes[winner]:
                winner = class_
        certain = True
        for class_ in range(classes):
            # With every open pair won; a tie falls to the lower class.
            possible = votes[class_] - lost[class_] + unsure[class_] + (class_ < winner)
            if class_ != winner and possible > votes[winner] - lost[winner]:
                certain = False
        winners[sample] = winner
        sure[sample] = certain


@compiled
def unsure_rounding(
    kernel: Any, lengths: Any, factor: float, least: float, rows: Any, columns: Any
) -> int:
    """Entries above the diagonal that may round to another float32 within their uncertainty.

    That of entry (i, j), relative, is ``factor`` · (lengths[i] + lengths[j])² + ``least``. Their
    places are written to ``rows`` and ``columns``, as many as those hold; returns how many.
    """
    samples = len(kernel)
    count = 0
    for row in range(samples):
        for column in range(row + 1, samples):
            reach = lengths[row] + lengths[column]
            part = kernel[row, column] * (factor * reach * reach + least)
            if np.float32(kernel[row, column] - part) != np.float32(kernel[row, column] + part):
                if count < len(rows):
                    rows[count] = row
                    columns[count] = column
                count += 1
    return count

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

F = TypeVar("F", bound=Callable[..., Any])

TILE = 8
"""Filters at a time: eight float64 of one sample fill a cache line of the features."""


def compiled(function: F) -> F:
    """No fast-math: sums keep their order."""
    return cast(F, numba.njit(nogil=True, cache=True, error_model="numpy")(function))


def inlined(function: F) -> F:
    """The same for the inner step, whose call would cost as much as its work."""
    return cast(
        F, numba.njit(nogil=True, cache=True, error_model="numpy", forceinline=True)(function)
    )


@inlined
def add_part(
    means: Any, channel: int, weight: Any, filter_: int, column: int, sums: Any, row: int
) -> None:
    """Add Σ_k weight[filter, column, k] · means[channel, k] over samples to a row of ``sums``."""
    _, taps, samples = means.shape
    tap = 0
    while tap + 7 < taps:  # as many rows as the compiler will still make vectors of
        one, two = weight[filter_, column, tap], weight[filter_, column, tap + 1]
        three, four = weight[filter_, column, tap + 2], weight[filter_, column, tap + 3]
        five, six = weight[filter_, column, tap + 4], weight[filter_, column, tap + 5]
        seven, eight = weight[filter_, column, tap + 6], weight[filter_, column, tap + 7]
        for sample in range(samples):
            sums[row, sample] += (
                one * means[channel, tap, sample]
                + two * means[channel, tap + 1, sample]
                + three * means[channel, tap + 2, sample]
                + four * means[channel, tap + 3, sample]
                + five * means[channel, tap + 4, sample]
                + six * means[channel, tap + 5, sample]
                + seven * means[channel, tap + 6, sample]
                + eight * means[channel, tap + 7, sample]
            )
        tap += 8
    while tap < taps:
        one = weight[filter_, column, tap]
        for sample in range(samples):
            sums[row, sample] += one * means[channel, tap, sample]
        tap += 1


@compiled
def sum_steps(
    means: Any, weight: Any, first_channel: Any, columns: Any, gone_at: Any, bias: Any, out: Any
) -> None:
    """ReLU of every filter's mean at every step, written to ``out`` (steps, samples, filters).

    Parameters
    ----------
    means : (channels, kernel, samples) float64
    weight : (filters, columns, kernel) float64
    first_channel : (filters,) channel of a filter's column 0
    columns : (filters, columns) a filter's columns, those that go last first
    gone_at : (filters, columns) the first step at which a connection is gone
    bias : (filters,)
    """
    steps, samples, filters = out.shape
    sums = np.empty((TILE, samples), np.float64)
    done = np.empty(TILE, np.int64)
    for start in range(0, filters, TILE):
        size = min(TILE, filters - start)
        for index in range(size):
            done[index] = 0
            for sample in range(samples):
                sums[index, sample] = bias[start + index]
        for step in range(steps - 1, -1, -1):
            for index in range(size):
                row = start + index
                while done[index] < columns.shape[1]:
                    column = columns[row, done[index]]
                    if gone_at[row, column] <= step:
                        break
                    add_part(means, first_channel[row] + column, weight, row, column, sums, index)
                    done[index] += 1
            for sample in range(samples):
                for index in range(size):
                    value = sums[index, sample]
                    out[step, sample, start + index] = value if value > 0.0 else 0.0


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

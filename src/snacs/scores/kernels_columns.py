"""Compiled passes over whole evidence: turning arrays, deviations, and projections."""

from __future__ import annotations

from typing import Any

import numpy as np

from snacs.scores.kernels import compiled

TILE = 32
"""Side of the tiles in which arrays are turned: two of them fit into the first-level cache."""


@compiled
def turn(values: Any, factor: Any, first: Any, last: Any, turned: Any) -> None:
    """turned[first:last] = values.T[first:last] · factor, tile by tile.

    Rows far apart would miss the caches.
    """
    rows = len(values)
    for first_row in range(0, rows, TILE):
        for first_column in range(first, last, TILE):
            for row in range(first_row, min(first_row + TILE, rows)):
                for column in range(first_column, min(first_column + TILE, last)):
                    turned[column, row] = values[row, column] * factor


@compiled
def column_deviations(values: Any) -> Any:
    """Standard deviation of each column of (N, columns) values, in double precision, row by row."""
    rows, columns = values.shape
    means, squares = np.zeros(columns, np.float64), np.zeros(columns, np.float64)
    for row in range(rows):
        for column in range(columns):
            means[column] += np.float64(values[row, column])
    for column in range(columns):
        means[column] /= rows
    for row in range(rows):
        for column in range(columns):
            difference = np.float64(values[row, column]) - means[column]
            squares[column] += difference * difference
    return np.sqrt(squares / rows)


@compiled
def turn_chosen(values: Any, chosen: Any, factors: Any, first: Any, last: Any, turned: Any) -> None:
    """turned[first:last] = values[:, chosen].T[first:last], every row times its factor."""
    rows = len(values)
    for first_row in range(0, rows, TILE):
        for place in range(first, last):
            for row in range(first_row, min(first_row + TILE, rows)):
                turned[place, row] = values[row, chosen[place]] * factors[place]


@compiled
def project(directions: Any, values: Any, first: Any, last: Any, projected: Any) -> None:
    """Put directions (K, rows) @ values (rows, N) of samples first … last into ``projected``.

    Double precision, row after row, so that the bits depend on neither BLAS nor the shares.
    """
    count, rows = directions.shape
    samples = last - first
    found = np.zeros((count, samples), np.float64)  # its own, or nothing becomes a vector
    for row in range(rows):
        own = values[row][first:last]
        for direction in range(count):
            share = directions[direction, row]
            for sample in range(samples):
                found[direction, sample] += share * np.float64(own[sample])
    projected[:, first:last] = found

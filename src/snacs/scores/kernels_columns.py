"""Compiled passes over whole evidence: turning arrays, deviations, and projections."""

from __future__ import annotations

from typing import Any

import numpy as np

from snacs.scores.kernels import compiled

TILE = 32
"""Side of the tiles in which arrays are turned: two of them fit into the first-level cache."""


@compiled
def turn(values: Any, factor: Any) -> Any:
    """values.T · factor, contiguous, tile by tile: rows far apart would miss the caches."""
    rows, columns = values.shape
    turned = np.empty((columns, rows), np.float32)
    for first_row in range(0, rows, TILE):
        for first_column in range(0, columns, TILE):
            for row in range(first_row, min(first_row + TILE, rows)):
                for column in range(first_column, min(first_column + TILE, columns)):
                    turned[column, row] = values[row, column] * factor
    return turned


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
def turn_chosen(values: Any, chosen: Any, factors: Any) -> Any:
    """Return values[:, chosen].T, every row times its factor, tile by tile."""
    rows = len(values)
    turned = np.empty((len(chosen), rows), np.float64)
    for first_row in range(0, rows, TILE):
        for place in range(len(chosen)):
            for row in range(first_row, min(first_row + TILE, rows)):
                turned[place, row] = values[row, chosen[place]] * factors[place]
    return turned


@compiled
def project(directions: Any, values: Any) -> Any:
    """Return directions (K, rows) @ values (rows, N): double precision, row after row."""
    count, rows = directions.shape
    samples = values.shape[1]
    found = np.zeros((count, samples), np.float64)
    for row in range(rows):
        for direction in range(count):
            share = directions[direction, row]
            for sample in range(samples):
                found[direction, sample] += share * np.float64(values[row, sample])
    return found

"""Compiled parts of MINT's estimator: Prim's algorithm on dense distances, nearest neighbours."""

from __future__ import annotations

from typing import Any

import numpy as np

from snacs.scores.kernels import compiled


@compiled
def grow_tree(base: Any, extra: Any) -> Any:
    """Minimum spanning tree of N points by Prim's algorithm: the parent of every point.

    The squared distance of two points is ``base`` (N, N) plus that of the coordinates ``extra``
    (dims, N), which are worked in on the fly, so that a layer's pairs can share ``base``.
    The root, point 0, has parent −1; of equal distances the first found wins.
    """
    samples = base.shape[0]
    parent = np.full(samples, -1, np.int32)
    nearest = np.full(samples, np.inf, np.float32)
    closed = np.zeros(samples, np.float32)
    distance = np.empty(samples, np.float32)
    current = np.int32(0)
    for _ in range(samples - 1):
        closed[current] = np.inf
        nearest[current] = np.inf
        for point in range(samples):
            distance[point] = base[current, point] + closed[point]
        for dim in range(len(extra)):
            own = extra[dim, current]
            for point in range(samples):
                step = extra[dim, point] - own
                distance[point] += step * step
        for point in range(samples):
            closer = distance[point] < nearest[point]
            nearest[point] = distance[point] if closer else nearest[point]
            parent[point] = current if closer else parent[point]
        best = np.float32(np.inf)
        for point in range(samples):
            if nearest[point] < best:
                best = nearest[point]
                current = np.int32(point)
    return parent


@compiled
def rest_distances(whole: Any, part: Any) -> Any:
    """Squared distances without some coordinates ``part`` (dims, N), from those with all."""
    samples = whole.shape[0]
    rest = np.empty((samples, samples), np.float32)
    row = np.empty(samples, np.float64)
    for first in range(samples):
        for second in range(samples):
            row[second] = whole[first, second]
        for dim in range(len(part)):
            own = part[dim, first]
            for second in range(samples):
                step = part[dim, second] - own
                row[second] -= step * step
        for second in range(samples):
            rest[first, second] = max(row[second], 0.0)
    return rest


@compiled
def add_distances(distances: Any, part: Any) -> None:
    """Add the squared distances of some coordinates ``part`` (dims, N) in place."""
    samples = distances.shape[0]
    for first in range(samples):
        for dim in range(len(part)):
            own = part[dim, first]
            for second in range(samples):
                step = part[dim, second] - own
                distances[first, second] += step * step


@compiled
def nearest_among(distances: Any, chosen: Any) -> Any:
    """For each chosen point the nearest other chosen one; of equal distances the first."""
    nearest = np.empty(len(chosen), np.int64)
    for index in range(len(chosen)):
        best = np.float32(np.inf)
        nearest[index] = chosen[index]
        for other in range(len(chosen)):
            distance = distances[chosen[index], chosen[other]]
            if other != index and distance < best:
                best = distance
                nearest[index] = chosen[other]
    return nearest

"""MINT's score: geometric conditional mutual information by a minimum spanning tree.

The conditional geometric MI is the ACMI with φ = 1. MINT estimates it by the two-sample statistic
of Friedman and Rafsky, without bins:

1. The N samples are split at random into two halves, of n₁ and n₂.
2. The second half is made conditionally independent: each of its samples (x, y, z) becomes
   (x, y', z), y' being the y of the sample of the same half whose z is nearest (itself excluded).
   Neighbours come from the same half, so that the two halves stay independent of each other.
   Where Z is empty or ``conditional=False``, y' is a random permutation of the half's y.
3. R is the number of edges of the Euclidean minimum spanning tree of all N points that join the
   two halves. Few such edges mean that joint and resampled points lie apart.
4. Î = max(0, 1 − R · N / (2 n₁ n₂)).

Cross edges are counted edge by edge (MINT's own program reads the tree's sparse columns as if they
were row-aligned). Activations enter in their own units, as in MINT. X is an output filter, Y an
input filter, Z all other inputs of the layer; with groups X and Y are vectors. The split is drawn
once per layer. A layer with more than SAMPLE_LIMIT samples is thinned to that many at random: the
cost grows with N², and this is what MINT used (200 per class).

Memory: 8 N² bytes per layer and 4 N² per thread, 32 and 16 MB at N = 2000. Distances come from one
BLAS product per layer; bits are the same for any number of threads here, given the BLAS threads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.csgraph import minimum_spanning_tree
from scipy.spatial.distance import cdist

from snacs.config import Config
from snacs.errors import InputError
from snacs.scores.grouping import Block, blocks_of
from snacs.scores.kernels import plain
from snacs.scores.kernels_mst import add_distances, grow_tree, nearest_among, rest_distances
from snacs.scores.parallel import map_threads
from snacs.values import Evidence

Floats = NDArray[np.floating[Any]]

SAMPLE_LIMIT = 2000
"""Samples per layer, at most."""


@dataclass(frozen=True, eq=False)
class Halves:
    """Which samples keep their y, which are resampled, and the order used where Z is empty."""

    joint: NDArray[np.int64]
    resampled: NDArray[np.int64]
    permuted: NDArray[np.int64]

    @staticmethod
    def draw(rng: np.random.Generator, samples: int) -> Halves:
        order = rng.permutation(samples)
        joint, resampled = order[: samples - samples // 2], order[samples - samples // 2 :]
        return Halves(np.sort(joint), np.sort(resampled), rng.permutation(np.sort(resampled)))

    @property
    def label(self) -> NDArray[np.int64]:
        """(N,) 0 in the joint half, 1 in the resampled one."""
        label = np.zeros(len(self.joint) + len(self.resampled), dtype=np.int64)
        label[self.resampled] = 1
        return label

    def statistic(self, crossing: int) -> float:
        """max(0, 1 − R N / (2 n₁ n₂))."""
        first, second = len(self.joint), len(self.resampled)
        return max(0.0, 1 - crossing * (first + second) / (2 * first * second))


def squared_distances(points: Floats, *, dtype: Any = np.float64) -> NDArray[Any]:
    """(N, N) squared Euclidean distances of (N, dims) points by one matrix product."""
    centred = (points - points.mean(axis=0, dtype=np.float64)).astype(dtype)
    squares = (centred**2).sum(axis=1)
    distances = centred @ centred.T
    distances *= -2
    distances += squares[:, None]
    distances += squares[None, :]
    return np.asarray(np.maximum(distances, 0, out=distances))


def tree_reference(points: Floats) -> tuple[NDArray[np.int64], float]:
    """Edges (N − 1, 2) and length of the minimum spanning tree, by scipy."""
    distances = cdist(points, points)
    # scipy takes 0 for "no edge"; a constant added to every edge changes no spanning tree's rank.
    tree = minimum_spanning_tree(distances + 1).tocoo()
    edges = np.stack([tree.row, tree.col], axis=1).astype(np.int64)
    return edges, float(distances[edges[:, 0], edges[:, 1]].sum())


def tree(points: Floats) -> tuple[NDArray[np.int64], float]:
    """The same by a matrix product and a compiled Prim."""
    distances = squared_distances(points)
    parent = grow_tree(distances.astype(np.float32), np.zeros((0, len(points)), np.float32))
    edges = np.stack([np.arange(1, len(points)), parent[1:]], axis=1)
    return edges, float(np.sqrt(distances[edges[:, 0], edges[:, 1]]).sum())


def _crossing(parent: NDArray[np.int32], label: NDArray[np.int64]) -> int:
    """R from the parents of all points but the root."""
    return int((label[1:] != label[parent[1:]]).sum())


def crossing_edges(edges: NDArray[np.int64], label: NDArray[np.int64]) -> int:
    """R: edges whose ends carry different labels."""
    return int((label[edges[:, 0]] != label[edges[:, 1]]).sum())


def resample_reference(y: Floats, z: Floats, halves: Halves) -> Floats:
    """The second half's y replaced by that of the nearest neighbour in Z, (N, dims)."""
    source = halves.permuted
    if z.shape[1]:
        distances = cdist(z[halves.resampled], z[halves.resampled])
        np.fill_diagonal(distances, np.inf)
        source = halves.resampled[distances.argmin(axis=1)]
    resampled = y.copy()
    resampled[halves.resampled] = y[source]
    return resampled


def geometric_reference(x: Floats, y: Floats, z: Floats, halves: Halves) -> float:
    """Î of one pair from (N, dims) samples, with scipy's tree: the four steps above."""
    points = np.concatenate([x, resample_reference(y, z, halves), z], axis=1)
    edges, _ = tree_reference(points)
    return halves.statistic(crossing_edges(edges, halves.label))


def geometric(x: Floats, y: Floats, z: Floats, halves: Halves) -> float:
    """The same for one pair with one matrix product, in single precision, and a compiled Prim."""
    samples, source = len(x), halves.permuted
    base = np.zeros((samples, samples), np.float32)
    if z.shape[1]:
        base = squared_distances(z, dtype=np.float32)
        source = nearest_among(base, halves.resampled)
    drawn = y.copy()
    drawn[halves.resampled] = y[source]
    extra = np.ascontiguousarray(np.concatenate([x, drawn], axis=1).T, dtype=np.float32)
    return halves.statistic(_crossing(grow_tree(base, extra), halves.label))


def score_mint(
    evidence: Evidence, config: Config, rng: np.random.Generator, threads: int
) -> tuple[NDArray[np.float64], dict[str, float]]:
    """MINT's score of every connection, (c_out, c_in); no occupancy, since nothing is hashed."""
    layer, samples = evidence.layer, len(evidence.outputs)
    if samples < 4:
        raise InputError(
            f"Layer {layer.name!r}: score 'mint' needs at least 4 samples. Got {samples}; "
            "use more images or positions."
        )
    chosen = np.arange(samples)
    if samples > SAMPLE_LIMIT:
        chosen = np.sort(rng.choice(samples, SAMPLE_LIMIT, replace=False))
    halves = Halves.draw(rng, len(chosen))
    inputs = plain(evidence.inputs[chosen].T)
    outputs = plain(evidence.outputs[chosen].T)
    scores = np.zeros((layer.c_out, layer.c_in))
    for block in blocks_of(layer, config.groups):
        own = inputs[block.channels(slice(0, layer.c_in))]
        _score_block(scores, block, own, outputs, halves, config, threads)
    return scores, {}


def _score_block(
    scores: NDArray[np.float64],
    block: Block,
    inputs: NDArray[np.float32],
    outputs: NDArray[np.float32],
    halves: Halves,
    config: Config,
    threads: int,
) -> None:
    """Fill in the scores of one convolution group."""
    given = config.conditional and len(block.columns) > 1
    whole = squared_distances(inputs.T) if given else np.zeros((inputs.shape[1],) * 2)
    label = halves.label

    def score_parent(columns: slice) -> list[float]:
        part = inputs[columns]
        source = halves.permuted
        base = rest_distances(whole, part if given else part[:0])
        if given:
            source = nearest_among(base, halves.resampled)
        drawn = part.copy()
        drawn[:, halves.resampled] = part[:, source]
        add_distances(base, drawn)
        values = []
        for rows in block.rows:
            parent = grow_tree(base, outputs[rows])
            values.append(halves.statistic(_crossing(parent, label)))
        return values

    results = map_threads(score_parent, block.columns, threads=threads)
    scores[block.filters] = block.spread(np.array(results).T)

"""What the kernels are compared with, written as a competent person would without them.

None is slowed down on purpose: distances come from one matrix product, Prim is compiled, the SVM is
scikit-learn's, the convolution torch's, and the dictionaries come in two ways: as such estimators
are published, and with numpy and ``Counter``.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.svm import SVC

from snacs.connections import prune_order
from snacs.scores.mst import Halves, geometric, geometric_reference

Floats = NDArray[np.floating[Any]]


def compiled_tree(x: Floats, y: Floats, z: Floats, halves: Halves) -> float:
    """MINT's estimate of one pair: distances by one matrix product, Prim compiled."""
    return geometric(x, y, z, halves)


def scipy_tree(x: Floats, y: Floats, z: Floats, halves: Halves) -> float:
    """The same with scipy's distances and minimum spanning tree."""
    return geometric_reference(x, y, z, halves)


def dictionary_acmi(
    x: Floats, y: Floats, z: Floats, *, directions: Floats | None, width: float, shift: Floats
) -> float:
    """ACMI (φ = 1, full support) of one pair: every sample is hashed and counted in dictionaries.

    This is how the published programs of hash-based estimators (EDGE, on which the paper builds)
    are written: a hash function of one sample, a loop over samples, dictionaries of tuples. Each
    pair is estimated from its own three variables, and nothing is kept from one pair to the next.

    ``x`` (N, dims), ``y`` (N, dims), ``z`` (N, dims of Z), every variable in units of its own
    spread. ``directions`` (dims of Z, count) project Z, as the authors' programs do; with None
    every coordinate of Z is floored, as the paper prints it, and H2 is the dictionary's own hash.
    """

    def cell(sample: Floats, offset: float) -> tuple[float, ...]:
        return tuple(np.floor(sample / width + offset).tolist())

    joint: dict[Any, int] = {}
    with_x: dict[Any, int] = {}
    with_y: dict[Any, int] = {}
    alone: dict[Any, int] = {}
    projected = z if directions is None else z @ directions
    for index in range(len(x)):
        i, j = cell(x[index], shift[0]), cell(y[index], shift[1])
        k = cell(projected[index], shift[2])
        joint[i, j, k] = joint.get((i, j, k), 0) + 1
        with_x[i, k] = with_x.get((i, k), 0) + 1
        with_y[j, k] = with_y.get((j, k), 0) + 1
        alone[k] = alone.get(k, 0) + 1
    return _from_counts(joint, with_x, with_y, alone, len(x))


def counter_acmi(
    x: Floats, y: Floats, z: Floats, *, directions: Floats, width: float, shift: Floats
) -> float:
    """The same by someone who knows numpy: samples floored all at once, counted by ``Counter``."""
    cells = [
        list(map(tuple, np.floor(values / width + offset).astype(int).tolist()))
        for values, offset in ((x, shift[0]), (y, shift[1]), (z @ directions, shift[2]))
    ]
    return _from_counts(
        Counter(zip(*cells, strict=True)),
        Counter(zip(cells[0], cells[2], strict=True)),
        Counter(zip(cells[1], cells[2], strict=True)),
        Counter(cells[2]),
        len(x),
    )


def _from_counts(joint: Any, with_x: Any, with_y: Any, alone: Any, samples: int) -> float:
    """1 − (2/N) Σ rα / (r + α) over observed cells."""
    overlap = 0.0
    for (i, j, k), count in joint.items():
        expected = with_x[i, k] * with_y[j, k] / alone[k]
        overlap += count * expected / (count + expected)
    return 1 - 2 * overlap / samples


def refitted_accuracy(
    maps: torch.Tensor, weight: torch.Tensor, scores: Floats, labels: Floats, level: float
) -> float:
    """The authors' way to one level: prune, convolve all images, fit an SVM, ask it.

    ``maps`` (images, c_in, side, side), ``weight`` (c_out, c_in, 3, 3).
    """
    features = convolved(maps, pruned_weight(weight, scores, level))
    return float((SVC().fit(features, labels).predict(features) == labels).mean())


def convolved(maps: torch.Tensor, weight: torch.Tensor) -> Floats:
    """ReLU of every filter's spatial mean, (images, c_out), through a real convolution."""
    with torch.no_grad():
        outputs = [
            torch.nn.functional.conv2d(part, weight, padding=1).mean(dim=(2, 3)).relu()
            for part in maps.split(250)
        ]
    return torch.cat(outputs).double().numpy()


def pruned_weight(weight: torch.Tensor, scores: Floats, level: float) -> torch.Tensor:
    """The weight without the lowest-scored ``level`` of its connections."""
    gone = prune_order(scores)[: int(level * scores.size + 1e-9)]
    keep = torch.ones(scores.size)
    keep[torch.from_numpy(gone)] = 0
    return weight * keep.reshape(*scores.shape, 1, 1)

"""What the kernels are compared with, written as a competent person would without them.

None is slowed down on purpose: distances come from one matrix product, Prim is compiled, counting
uses Python's own ``Counter``, the SVM is scikit-learn's and the convolution torch's.
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
    x: Floats, y: Floats, z: Floats, *, directions: Floats, width: float, shift: Floats
) -> float:
    """ACMI (φ = 1, full support) of one pair by counting tuples in dictionaries.

    ``x`` (N, dims), ``y`` (N, dims), ``z`` (N, dims of Z), ``directions`` (dims of Z, count); every
    variable is given in units of its own spread.
    """
    cells = [
        list(map(tuple, np.floor(values / width + offset).astype(int).tolist()))
        for values, offset in ((x, shift[0]), (y, shift[1]), (z @ directions, shift[2]))
    ]
    joint = Counter(zip(*cells, strict=True))
    with_x = Counter(zip(cells[0], cells[2], strict=True))
    with_y = Counter(zip(cells[1], cells[2], strict=True))
    alone = Counter(cells[2])
    overlap = 0.0
    for (i, j, k), count in joint.items():
        expected = with_x[i, k] * with_y[j, k] / alone[k]
        overlap += count * expected / (count + expected)
    return 1 - 2 * overlap / len(x)


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

"""What a layer's filters show an SVM after any number of connections has gone.

The feature of filter i is the ReLU of its spatial mean, and that mean is linear in the weights:

    f_i = ReLU( Σ_j W(i, j) · (means of input channel j over the shifted windows) + bias_i ).

So no convolution is run, and since a connection that has gone stays gone at higher levels, each
connection's contribution is computed once for all levels: it is added to the step at which it
goes, and the features of a step are the sums over all later steps. Everything is float64.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from snacs.values import Evidence, FloatArray, IntArray

_BYTES = 24_000_000  # of the features of all steps of one block of samples


def unpruned_features(evidence: Evidence, samples: IntArray) -> FloatArray:
    """(samples, c_out) features of the dense layer."""
    layer = evidence.layer
    weight = _grouped_weight(evidence).reshape(layer.groups, -1, layer.c_in * layer.kernel)
    features = np.empty((len(samples), layer.c_out))
    for start in range(0, len(samples), 256):
        means = np.asarray(evidence.window_means[samples[start : start + 256]], dtype=np.float64)
        means = means.reshape(len(means), layer.groups, -1).transpose(1, 2, 0)
        features[start : start + 256] = (weight @ means).reshape(layer.c_out, -1).T
    return _activate(features, evidence.bias)


def pruned_features(
    evidence: Evidence, samples: IntArray, gone_at: IntArray, steps: int
) -> Iterator[tuple[slice, FloatArray]]:
    """Features at steps 0 … steps − 1, block by block of samples.

    Parameters
    ----------
    gone_at : (c_out, c_in)
        The first step at which a connection is gone: 0 … ``steps``; ``steps`` is never.

    Yields
    ------
    The block's place in ``samples`` and its features, (steps, block, c_out).
    """
    layer = evidence.layer
    weight = _grouped_weight(evidence)
    size = max(8, _BYTES // ((steps + 1) * layer.c_out * 8))
    rows = np.arange(layer.c_out)
    places = gone_at * layer.c_out + rows[:, None]
    for start in range(0, len(samples), size):
        chosen = samples[start : start + size]
        means = np.asarray(evidence.window_means[chosen], dtype=np.float64).transpose(1, 2, 0)
        means = np.ascontiguousarray(means).reshape(layer.groups, layer.c_in, layer.kernel, -1)
        sums = np.zeros(((steps + 1) * layer.c_out, len(chosen)))
        for column in range(layer.c_in):
            part = weight[:, :, column] @ means[:, column]
            sums[places[:, column]] += part.reshape(layer.c_out, -1)
        by_step = sums.reshape(steps + 1, layer.c_out, len(chosen))
        for step in range(steps - 1, 0, -1):
            by_step[step] += by_step[step + 1]
        # A connection is there at step t if it goes later: t + 1 … steps.
        features = np.ascontiguousarray(by_step[1:].transpose(0, 2, 1))
        yield slice(start, start + len(chosen)), _activate(features, evidence.bias)


def _grouped_weight(evidence: Evidence) -> FloatArray:
    """(groups, filters of a group, c_in, kernel)."""
    layer = evidence.layer
    weight = np.asarray(evidence.weight, dtype=np.float64)
    return weight.reshape(layer.groups, -1, layer.c_in, layer.kernel)


def _activate(means: FloatArray, bias: FloatArray | None) -> FloatArray:
    if bias is not None:
        means += np.asarray(bias, dtype=np.float64)
    np.maximum(means, 0.0, out=means)
    return means

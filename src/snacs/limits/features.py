"""What a layer's filters show an SVM after any number of connections has gone.

The feature of filter i is the ReLU of its spatial mean, and that mean is linear in the weights:

    f_i = ReLU( Σ_j W(i, j) · (means of input channel j over the shifted windows) + bias_i ).

So no convolution is run, and since a connection that has gone stays gone at higher levels, each
connection's contribution is computed once for all levels and added to the step at which it goes;
sums over later steps are the filters (``kernels``). Everything is float64.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from snacs.limits.kernels import sum_steps
from snacs.values import Evidence, FloatArray, IntArray

_BYTES = 26_000_000  # of the features of all steps of one block of samples


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
    The block's place in ``samples`` and its features, (steps, block, c_out), which the next block
    overwrites.
    """
    layer = evidence.layer
    weight = np.array(evidence.weight, dtype=np.float64)
    filters = np.arange(layer.c_out)
    first_channel = filters // (layer.c_out // layer.groups) * layer.c_in
    bias = np.zeros(layer.c_out)
    if evidence.bias is not None:
        bias += evidence.bias
    size = max(16, _BYTES // (steps * layer.c_out * 8) // 16 * 16)
    room = np.empty(steps * min(size, len(samples)) * layer.c_out)
    for start in range(0, len(samples), size):
        chosen = samples[start : start + size]
        means = np.array(evidence.window_means[chosen], dtype=np.float64, order="C")
        features = room[: steps * len(chosen) * layer.c_out]
        features = features.reshape(steps, len(chosen), layer.c_out)
        sum_steps(means, weight, first_channel, gone_at, bias, features)
        yield slice(start, start + len(chosen)), features


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

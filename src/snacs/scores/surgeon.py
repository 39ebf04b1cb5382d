"""What is lost with a kernel when all the other weights of its filter may make up for it.

Under a Gaussian model of a layer's input windows (covariance Σ), the part of a kernel's
contribution that no other input can stand in for has the variance

    s_ij = w_ijᵀ ([Σ⁻¹]_jj)⁻¹ w_ij,

the saliency of the optimal brain surgeon, and the conditional mutual information of kernel and
output given all other inputs is ½·log(1 + s_ij/σ_i²), σ_i² being the noise at which output i is
read. Conditioning is exact and closed: no hash, no sample. Where repair follows, the others do make
up for what is lost. Where nothing follows they do not, and yet its masks measured better up to a
target of 70 % (ResNet56; docs/research.md) than those of :mod:`snacs.scores.information`, which
asks what the kept kernels say as they are.

w is the least-squares solution with all kernels kept, for the outputs that are wanted (see
``snacs.network.choosing``). The noise is stated by the importance of a filter: σ_i² is one over
the square root of the expected squared change of the logits. Of the powers 0, ½ and 1 this measured
best (docs/research.md): with 1 whole filters die that the next layers still need, with 0 those that
matter lose as much as those that do not. The logarithm changes no order and is left out.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve, inv

from snacs.values import FloatArray

Floats = NDArray[np.float64]

RIDGE = 1e-3
"""Relative to the mean variance: the default of repair's ``ridge``, which it does not follow."""


def surgeon(
    weight: FloatArray,
    covariance: Floats,
    *,
    importance: FloatArray,
    cross: Floats | None = None,
    power: Floats | None = None,  # noqa: ARG001 - the interface of scores chosen in order
    threads: int = 1,  # noqa: ARG001 - the linear algebra has its own
) -> Floats:
    """(filters, c_in) scores; low goes first.

    Parameters
    ----------
    weight : (filters, c_in, kernel)
    covariance : (c_in·kernel, c_in·kernel) of the input windows
    importance : (filters,) what squared change of each output is worth
    cross : (filters, c_in·kernel) covariance of the windows with each filter's target; None: the
        target is the filter's own output

    Examples
    --------
    The first two inputs are the same, so either can stand in for the other; the third is alone.

    >>> x = np.array([[1, 1, 1], [1, 1, -1], [-1, -1, 1], [-1, -1, -1]])
    >>> scores = surgeon(np.ones((1, 3, 1)), x.T @ x / 4, importance=np.ones(1))
    >>> scores.round(2)
    array([[0., 0., 1.]])
    """
    filters, count, size = weight.shape
    flat = np.asarray(weight, dtype=np.float64).reshape(filters, count * size)
    pull = RIDGE * float(np.diagonal(covariance).mean())
    if not pull > 0:
        return np.zeros((filters, count))
    pulled = covariance.copy()
    pulled.flat[:: len(covariance) + 1] += pull
    wanted = flat @ covariance if cross is None else cross
    factor = cho_factor(pulled)
    solved = cho_solve(factor, (wanted + pull * flat).T).T
    inverse = cho_solve(factor, np.eye(len(covariance)))
    scores = np.empty((filters, count))
    for j in range(count):
        mine = slice(j * size, (j + 1) * size)
        part = solved[:, mine]
        scores[:, j] = ((part @ inv(inverse[mine, mine])) * part).sum(axis=1)
    return np.maximum(scores, 0.0) * np.sqrt(importance)[:, None]


def surgeon_reference(weight: FloatArray, covariance: Floats) -> Floats:
    """Squared error of the best fit without each kernel, one least-squares problem at a time.

    The errors are those of Σ + pull, as above: ridge regression towards the weights themselves.
    """
    filters, count, size = weight.shape
    flat = np.asarray(weight, dtype=np.float64).reshape(filters, count * size)
    pulled = covariance + RIDGE * float(np.diagonal(covariance).mean()) * np.eye(len(covariance))
    scores = np.empty((filters, count))
    for i in range(filters):
        for j in range(count):
            rest = [k for k in range(count * size) if k // size != j]
            right = (pulled @ flat[i])[rest]
            best = np.linalg.solve(pulled[np.ix_(rest, rest)], right)
            scores[i, j] = flat[i] @ pulled @ flat[i] - right @ best
    return scores

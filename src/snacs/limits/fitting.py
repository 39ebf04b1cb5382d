"""scikit-learn's SVC, fitted from a kernel matrix that one product makes, to the same bits.

libsvm computes each kernel value with a dot product of its own, several times over: most of a
fit. It then rounds the value to single precision, and that is all its solver sees. So a matrix
from one product gives the same machine, bit for bit, if every entry rounds to the same float32.
Entries that lie too near to the middle between two of them to be sure (some in a million) are
computed again, operation by operation as libsvm does.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg.blas import ddot
from sklearn.svm import SVC

from snacs.limits.kernels import unsure_rounding
from snacs.values import FloatArray, IntArray

_SHARE = 0.01  # of all entries; where more are unsure libsvm may as well compute them all


def fit_svc(features: FloatArray, labels: IntArray, gamma: float) -> SVC:
    """``SVC(C=1, kernel="rbf", gamma=gamma).fit(features, labels)``, without support vectors.

    ``support_``, ``n_support_``, ``dual_coef_`` and ``intercept_`` are those of that machine.
    """
    features = np.ascontiguousarray(features, dtype=np.float64)
    kernel = _kernel_matrix(features, gamma)
    if kernel is None:
        return SVC(C=1.0, kernel="rbf", gamma=gamma).fit(features, labels)
    return SVC(C=1.0, kernel="precomputed").fit(kernel, labels)


def _kernel_matrix(features: FloatArray, gamma: float) -> FloatArray | None:
    """exp(−gamma·|f − g|²) of all pairs, in single precision as libsvm rounds them."""
    width = features.shape[1]
    eps = float(np.finfo(np.float64).eps)
    squares = np.einsum("nd,nd->n", features, features)
    kernel = features @ features.T
    kernel *= 2.0
    kernel -= squares
    kernel -= squares[:, None]
    kernel *= gamma
    np.exp(kernel, out=kernel)
    # Both ways sum ``width`` products of |f||g| at most; a few operations more round them again.
    lengths = np.sqrt(squares)
    doubt = 4.0 * eps * (width + 4.0) * gamma
    most = int(_SHARE * kernel.size)
    rows, columns = np.empty(most, np.int64), np.empty(most, np.int64)
    count = unsure_rounding(kernel, lengths, doubt, 8.0 * eps, rows, columns)
    if count > most:
        return None
    own = np.array([ddot(row, row) for row in features]) if count else squares
    for row, column in zip(rows[:count].tolist(), columns[:count].tolist(), strict=True):
        product = ddot(features[row], features[column])
        value = np.exp(-gamma * (own[row] + own[column] - 2.0 * product))
        kernel[row, column] = kernel[column, row] = value
    np.fill_diagonal(kernel, 1.0)
    return kernel

"""Scores that need no estimator: L1 and L2 of the kernel, L2 × RMS activation, random."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from snacs.values import Evidence


def l1(evidence: Evidence) -> NDArray[np.float64]:
    """Σ |w| over the kernel, (c_out, c_in)."""
    return np.asarray(np.abs(evidence.weight.astype(np.float64)).sum(axis=2))


def l2(evidence: Evidence) -> NDArray[np.float64]:
    """√(Σ w²) over the kernel, (c_out, c_in)."""
    return np.asarray(np.sqrt((evidence.weight.astype(np.float64) ** 2).sum(axis=2)))


def l2_activation(evidence: Evidence) -> NDArray[np.float64]:
    """L2 of the kernel times the root mean square of the channel it reads, (c_out, c_in)."""
    rms = evidence.input_rms.astype(np.float64)
    return np.asarray(l2(evidence) * rms[evidence.layer.channel_of()])


def uniform(evidence: Evidence, rng: np.random.Generator) -> NDArray[np.float64]:
    """Random numbers in [0, 1): what every score has to beat."""
    return rng.random((evidence.layer.c_out, evidence.layer.c_in))

"""What the estimator says about its own cells, so that nobody mistakes hash noise for a score.

======================  ==========================================================================
``cells_z``             cells of the conditioning set that hold a sample
``mean_cell``           samples per such cell
``singletons``          fraction of samples that are alone in theirs: they can say nothing
``informative``         fraction of samples in cells where y varies: only these enter the score
``bins_x``, ``bins_y``  bins of X and Y that hold a sample
======================  ==========================================================================

All are averages over the pairs of a layer and over shifts.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

MEASURES = 5
"""Sums that the kernels keep: cells of Z, singletons, informative samples, bins of X, of Y."""


def occupancy_of(sums: NDArray[np.floating[Any]], *, pairs: int, samples: int) -> dict[str, float]:
    """The averages from sums over ``pairs`` tables of ``samples`` samples each."""
    cells, singletons, informative, bins_x, bins_y = (float(value) / pairs for value in sums)
    return {
        "cells_z": cells,
        "mean_cell": samples / cells,
        "singletons": singletons / samples,
        "informative": informative / samples,
        "bins_x": bins_x,
        "bins_y": bins_y,
    }

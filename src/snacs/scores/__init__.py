"""How much does each connection carry? From a layer's evidence to one score per connection.

``score(evidence, config, seed=…)`` is the entry; :data:`METHODS` names the ways to score. Nothing
here knows torch, files or global randomness. The same seed, layer name and evidence give the same
bits, whatever the number of threads.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from snacs.config import Config
from snacs.errors import InputError
from snacs.scores import magnitude
from snacs.scores.child import score_child
from snacs.scores.information import score_information
from snacs.scores.layer import score_layer
from snacs.scores.mst import score_mint
from snacs.values import Evidence, Scores

__all__ = ["METHODS", "RESOLUTION", "score"]

Result = tuple[NDArray[np.float64], dict[str, float]]
Method = Callable[[Evidence, Config, np.random.Generator, int], Result]

RESOLUTION = 1e-6
"""Scores are rounded to this fraction of the layer's largest, so that ties are real ties."""


def score_acmi(
    evidence: Evidence, config: Config, rng: np.random.Generator, threads: int
) -> Result:
    """Adaptive conditional mutual information in the view that the configuration names."""
    view = score_child if config.view == "child" else score_layer
    return view(evidence, config, rng, threads)


METHODS: dict[str, Method] = {
    "information": score_information,
    "acmi": score_acmi,
    "mint": score_mint,
    "l1": lambda evidence, _config, _rng, _threads: (magnitude.l1(evidence), {}),
    "l2": lambda evidence, _config, _rng, _threads: (magnitude.l2(evidence), {}),
    "l2-activation": lambda evidence, _config, _rng, _threads: (
        magnitude.l2_activation(evidence),
        {},
    ),
    "random": lambda evidence, _config, rng, _threads: (magnitude.uniform(evidence, rng), {}),
}
"""Every score by the name that ``Config.score`` takes: (evidence, config, rng, threads) → scores.

Groups and scaling concern "acmi" (and groups "mint"); the others score single kernels."""


def score(evidence: Evidence, config: Config, *, seed: int, threads: int = 1) -> Scores:
    """Score every connection of one layer: η(i, j) of the paper.

    Parameters
    ----------
    evidence : what the layer showed on the calibration images
    config : ``score``, and for "acmi" ``view``, ``support``, ``conditional``, ``hash``,
        ``directions``, ``width``, ``contribution_width``, ``shifts``, ``groups`` and ``scaling``
    seed : non-negative; together with the layer's name it fixes all randomness
    threads : of a pool over input filters; has no influence on the result

    Returns
    -------
    Scores
        ``values`` (c_out, c_in), rounded to a millionth of the layer's largest score;
        ``occupancy`` as ``snacs.scores.occupancy`` describes. A connection whose filter, input or
        contribution is constant scores 0 with "acmi".

    Raises
    ------
    InputError
        If a weight or an activation is NaN or infinite; the message names the layer.
    """
    _check_finite(evidence)
    values, occupancy = METHODS[config.score](evidence, config, _generator(evidence, seed), threads)
    return Scores(_rounded(values), occupancy)


def _generator(evidence: Evidence, seed: int) -> np.random.Generator:
    """Randomness of one layer: it does not depend on the order in which layers are scored."""
    name = hashlib.sha256(evidence.layer.name.encode()).digest()[:8]
    return np.random.default_rng([seed, int.from_bytes(name, "little")])


def _check_finite(evidence: Evidence) -> None:
    arrays = {
        "weight": evidence.weight,
        "bias": evidence.bias,
        "input windows": evidence.windows,
        "inputs": evidence.inputs,
        "outputs": evidence.outputs,
        "window means": evidence.window_means,
        "input RMS": evidence.input_rms,
        "importance": evidence.importance,
    }
    for name, array in arrays.items():
        if array is not None and not _is_finite(array):
            raise InputError(
                f"Layer {evidence.layer.name!r}: its {name} must be finite, but NaN or infinite "
                "values were found. Check the weights and the normalisation of the images."
            )


def _is_finite(array: NDArray[np.floating[Any]]) -> bool:
    """No NaN and no infinity: either shows in the sum of squares, cheaper than a look at each."""
    with np.errstate(over="ignore", invalid="ignore"):
        squares = np.vdot(array, array) if array.flags.c_contiguous else array.sum()
        return bool(np.isfinite(squares) or np.isfinite(array).all())


def _rounded(values: NDArray[np.float64]) -> NDArray[np.float64]:
    largest = float(values.max(initial=0.0))  # no score is negative but by rounding
    if largest == 0:
        return np.zeros_like(values)
    step = largest * RESOLUTION
    rounded = values / step
    np.rint(rounded, out=rounded)
    rounded *= step
    return rounded

"""The seven scaling functions φ of the paper.

Three depend on the weights alone: constant on a pair, they multiply its score. Three depend on the
activations: they vary by cell and are taken at the bin means, φ(i,j,k) = f(‖(x̄_i, ȳ_j, z̄_k)‖), so
that a cell that no sample fell into has a value as well. Activations are in the network's units.

============================  ====================================================
``one``                       1
``weights``                   ‖w‖
``weights-squared``           ‖w‖²
``exp-weights``               exp(−‖w‖²/2), the paper's choice; *falls* with weight
``activations``               ‖act‖
``weights-activations``       ‖w‖ ‖act‖
``exp-weights-activations``   exp(−‖w‖² ‖act‖² / 2)
============================  ====================================================

‖w‖ is the L2 norm of the kernel, rescaled to [0, 1] within the layer.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from snacs.config import SCALINGS, check_choice
from snacs.scores.grouping import Block, group_norms

Floats = NDArray[np.floating[Any]]


class Cellwise(enum.IntEnum):
    """How φ varies by cell, with q = ‖(x̄, ȳ, z̄)‖²: 1, √q or exp(−decay · q)."""

    ONE = 0
    NORM = 1
    DECAY = 2


@dataclass(frozen=True, eq=False)
class ScalingTerms:
    """φ taken apart: ``factor`` multiplies a pair's score, the rest varies by cell.

    ``factor`` and ``decay`` have one entry per pair, as the norms they were made from.
    """

    cellwise: Cellwise
    factor: Floats
    decay: Floats


def rescale(norms: Floats) -> Floats:
    """Min–max rescaling to [0, 1]; equal norms become 1 (0 if they are all 0).

    >>> rescale(np.array([1.0, 2.0, 3.0]))
    array([0. , 0.5, 1. ])
    """
    norms = norms.astype(np.float64)
    low, high = float(norms.min()), float(norms.max())
    if high == low:
        return np.full_like(norms, 1.0 if high > 0 else 0.0)
    return (norms - low) / (high - low)


def scaling_terms(scaling: str, norms: Floats) -> ScalingTerms:
    """φ for pairs whose kernels have these L2 norms (any shape; rescaled here)."""
    check_choice("scaling", scaling, SCALINGS)
    weights = rescale(norms)
    one, zero = np.ones_like(weights), np.zeros_like(weights)
    match scaling:
        case "one":
            return ScalingTerms(Cellwise.ONE, one, zero)
        case "weights":
            return ScalingTerms(Cellwise.ONE, weights, zero)
        case "weights-squared":
            return ScalingTerms(Cellwise.ONE, weights**2, zero)
        case "exp-weights":
            return ScalingTerms(Cellwise.ONE, np.exp(-(weights**2) / 2), zero)
        case "activations":
            return ScalingTerms(Cellwise.NORM, one, zero)
        case "weights-activations":
            return ScalingTerms(Cellwise.NORM, weights, zero)
        case _:
            return ScalingTerms(Cellwise.DECAY, one, weights**2 / 2)


def layer_terms(scaling: str, weight: Floats, blocks: tuple[Block, ...]) -> ScalingTerms:
    """φ for the pairs of a layer, (c_out, c_in); where it is 1 nobody needs the norms."""
    if scaling == "one":
        one, zero = (np.broadcast_to(value, weight.shape[:2]) for value in (1.0, 0.0))
        return ScalingTerms(Cellwise.ONE, one, zero)
    return scaling_terms(scaling, group_norms(weight, blocks))


def scaling_value(scaling: str, weight: float, norm: Floats) -> Floats:
    """φ itself at a rescaled weight and activation norms: the reference for the terms above."""
    check_choice("scaling", scaling, SCALINGS)
    values = {
        "one": np.ones_like(norm),
        "weights": np.full_like(norm, weight),
        "weights-squared": np.full_like(norm, weight**2),
        "exp-weights": np.full_like(norm, np.exp(-(weight**2) / 2)),
        "activations": norm,
        "weights-activations": weight * norm,
        "exp-weights-activations": np.exp(-(weight**2) * norm**2 / 2),
    }
    return values[scaling]

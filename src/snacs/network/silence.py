"""Which BatchNorm channels carry nothing once filters have lost all their kernels.

A dead filter gives zero, but the BatchNorm behind it would turn that into a constant.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from snacs.values import BoolArray, Norm, Structure


def dead_filters(keep: BoolArray) -> BoolArray:
    """(c_out,) filters that lost all their kernels."""
    filters: BoolArray = keep.sum(axis=1) == 0
    return filters


def silent_norms(
    model: nn.Module, dead: Mapping[str, BoolArray], structure: Structure | None
) -> tuple[dict[str, BoolArray], list[str]]:
    """Channels of each BatchNorm that only dead filters reach, and what has to be left."""
    if not dead:
        return {}, []
    if structure is None:
        norms = [m for m in model.modules() if isinstance(m, _BatchNorm)]
        note = "Dead filters' BatchNorm was left as it is: pass structure= to have it silenced."
        return {}, [note] if norms else []
    silent: dict[str, BoolArray] = {}
    notes: list[str] = []
    for norm in structure.norms:
        reached_by_dead, only_dead = _reach(norm, dead)
        module = model.get_submodule(norm.name)
        if not reached_by_dead.any():
            continue
        if not isinstance(module, _BatchNorm):
            notes.append(
                f"{norm.name} ({norm.kind}) mixes channels: {int(reached_by_dead.sum())} channels "
                "of dead filters were left as they are."
            )
        elif only_dead.any() and not module.affine:
            notes.append(
                f"{norm.name} ({norm.kind}) has no scale and shift: {int(only_dead.sum())} "
                "channels of dead filters stay constant, not zero."
            )
        elif only_dead.any():
            silent[norm.name] = only_dead
    return silent, notes


def _reach(norm: Norm, dead: Mapping[str, BoolArray]) -> tuple[BoolArray, BoolArray]:
    """Channels that some dead filter reaches, and those that nothing else reaches."""
    by_dead = np.zeros(norm.channels, dtype=bool)
    by_live = np.zeros(norm.channels, dtype=bool)
    for feed in norm.feeds:
        channels = slice(feed.start, feed.start + feed.length)
        none = np.zeros(feed.first + feed.length, dtype=bool)
        gone = dead.get(feed.source, none)[feed.first : feed.first + feed.length]
        by_dead[channels] |= gone
        by_live[channels] |= ~gone
    return by_dead, by_dead & ~by_live

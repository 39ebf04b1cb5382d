"""Torch-Pruning's magnitude pruner as a baseline, at as many multiply-adds as another plan.

It removes whole filters, so weights are no common measure; MACs are. Its choice becomes a plan of
ours, and from there all stages are the same for everybody. Only filters that no residual sum
couples are offered to it: it does not know that the padded shortcuts of CIFAR ResNets shift channel
indices. (Extra ``torch-pruning``.)
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

import numpy as np
import torch
from torch import nn

from snacs.config import Config, Goal
from snacs.errors import InputError, ModelError
from snacs.network.batches import evaluating, logits_of, run
from snacs.network.cost import cost
from snacs.network.layers import module_of
from snacs.network.masking import apply_
from snacs.plans import Plan
from snacs.selection import select
from snacs.streams import streams
from snacs.values import BoolArray, LayerPlan, Structure

_STEPS = 12  # of the bisection: MACs within 1/4096, finer than one filter
_MOST = 0.97  # of a layer's filters


def installed_version() -> str:
    """Part of the keys of its plans; an error says how to install it."""
    try:
        return version("torch-pruning")
    except ModuleNotFoundError as error:
        raise InputError(
            "The method torch-pruning needs the package of that name: "
            "pip install 'snacs[torch-pruning]'."
        ) from error


def plan_at_macs(
    model: nn.Module, structure: Structure, example: torch.Tensor, gone: float, config: Config
) -> Plan:
    """Remove filters by their L2 norm until at least a fraction ``gone`` of the MACs is gone."""
    free = free_layers(structure)
    if not free:
        raise InputError("Residual sums couple all filters: there is none that can go alone.")
    low, high = 0.0, _MOST
    best: dict[str, BoolArray] | None = None
    made = model
    for _ in range(_STEPS):
        ratio = (low + high) / 2 if best is not None else high
        removed, small = removed_filters(model, structure, example, free, ratio)
        masks = select(structure, {}, {}, {}, removed=removed)
        found = cost(structure, masks)
        if 1 - found.macs_compacted / found.macs >= gone:
            best, made, high = removed, small, ratio
        elif best is None:
            most = 1 - found.macs_compacted / found.macs
            raise InputError(
                f"Torch-Pruning can remove at most {most:.1%} of the MACs without touching the "
                f"residual streams; {gone:.1%} were asked for. Lower the target."
            )
        else:
            low = ratio
    if best is None:
        raise InputError("Torch-Pruning removed nothing.")
    masks = select(structure, {}, {}, {}, removed=best)
    _check(model, made, structure, masks, example)
    parts = tuple(
        LayerPlan(
            layer,
            masks[layer.name],
            np.zeros((layer.c_out, layer.c_in), dtype=np.float32),
            float(1 - masks[layer.name].mean()),
            np.zeros(layer.c_out, dtype=bool),
        )
        for layer in structure.prunable
    )
    notes = (f"Filters chosen by torch-pruning {installed_version()}.",)
    return Plan(structure, parts, Goal(), config, None, None, notes, {"macs": gone})


def free_layers(structure: Structure) -> list[str]:
    """Prunable layers of several filters, none of which meets another layer's in a residual sum."""
    coupled = {
        name
        for stream in streams(structure)
        for name, _ in stream.members
        if stream.kept_because is not None or len({layer for layer, _ in stream.members}) > 1
    }
    return [
        layer.name for layer in structure.prunable if layer.name not in coupled and layer.c_out > 1
    ]


def removed_filters(
    model: nn.Module, structure: Structure, example: torch.Tensor, free: list[str], ratio: float
) -> tuple[dict[str, BoolArray], nn.Module]:
    """(c_out,) filters by layer that its magnitude pruner takes at a ratio, and what is left.

    A layer that would lose all filters Torch-Pruning leaves whole, and a larger ratio would remove
    less; so each has a ratio that leaves it one.
    """
    import torch_pruning as tp

    trial = copy.deepcopy(model).eval()
    names = {module_of(trial, layer): layer.name for layer in structure}
    ratios = {
        module_of(trial, layer): min(ratio, 1 - 1.01 / layer.c_out)  # 1/n would be rounded to none
        for layer in structure
        if layer.name in free
    }
    pruner = tp.pruner.MagnitudePruner(
        trial,
        example[:1],
        importance=tp.importance.MagnitudeImportance(p=2),
        pruning_ratio=ratio,
        pruning_ratio_dict=ratios,
        ignored_layers=[module for module, name in names.items() if name not in free],
    )
    removed = {
        layer.name: np.zeros(layer.c_out, dtype=bool) for layer in structure if layer.name in free
    }
    for group in pruner.step(interactive=True):
        name = names.get(group[0].dep.target.module)
        if name in removed:
            removed[name][group[0].idxs] = True
        group.prune()
    return removed, trial


def _check(
    model: nn.Module,
    made: nn.Module,
    structure: Structure,
    masks: Mapping[str, Any],
    example: torch.Tensor,
) -> None:
    """The masks must mean what Torch-Pruning did: both networks give the same outputs."""
    trial = copy.deepcopy(model)
    apply_(trial, masks, structure=structure, silence=True)
    with evaluating(trial), evaluating(made):
        ours, theirs = (logits_of(run(network, example)) for network in (trial, made))
    # Sums over fewer channels are taken in another order; float32 keeps about six digits.
    if not torch.allclose(ours, theirs, rtol=1e-3, atol=1e-3 * float(theirs.abs().max())):
        worst = float((ours - theirs).abs().max())
        raise ModelError(
            f"The network that torch-pruning left differs from the same filters masked by {worst:g}"
            ": it removed something else than it said."
        )

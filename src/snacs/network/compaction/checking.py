"""Comparing outputs before and after: in double precision, where only real differences are left."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from snacs.errors import ModelError
from snacs.network.batches import (
    Forward,
    evaluating,
    map_tensors,
    move,
    run,
    size_of,
    tensors_of,
)
from snacs.network.compaction.probing import noise_like

_TOLERANCES = {torch.float64: 1e-8, torch.float32: 1e-5}
"""Relative to the largest output. Removing zeros only changes the order of sums: 1e-16 per step in
double precision, grown by the depth; 1e-5 is what compaction promises in single precision."""
_COARSE = 2e-2  # half precision


@dataclass(frozen=True, eq=False)
class Checker:
    """Outputs of the network before compaction, on the example and on noise."""

    batches: Sequence[Any]
    outputs: Sequence[list[Tensor]]
    forward: Forward | None
    double: bool

    @staticmethod
    def of(model: nn.Module, batch: Any, forward: Forward | None) -> Checker:
        """Run the reference; in the network's own precision where double does not work."""
        noise = noise_like(batch, torch.Generator().manual_seed(1))
        try:
            return Checker._run(copy.deepcopy(model).double(), (batch, noise), forward, True)
        except ModelError:
            return Checker._run(model, (batch, noise), forward, False)

    @staticmethod
    def _run(
        model: nn.Module, batches: Sequence[Any], forward: Forward | None, double: bool
    ) -> Checker:
        batches = [move(batch, model) for batch in batches]
        outputs = [outputs_of(model, batch, forward) for batch in batches]
        if difference(outputs_of(model, batches[0], forward), outputs[0]) > 0:
            raise ModelError(
                "The network gives different outputs for the same input in eval mode, so nothing "
                "taken out of it can be checked. Make its forward deterministic."
            )
        return Checker(batches, outputs, forward, double)

    def fails(self, model: nn.Module, *, rounded: bool = False) -> str | None:
        """What is wrong with a compacted network, or None.

        ``rounded``: new numbers have been stored in the network, in its own precision.
        """
        own = next((p.dtype for p in model.parameters() if p.is_floating_point()), torch.float32)
        try:
            candidate = copy.deepcopy(model).double() if self.double else model
            found = [outputs_of(candidate, batch, self.forward) for batch in self.batches]
        except ModelError as error:
            return f"the network's forward does not allow it ({_reason(error)})"
        for mine, wanted in zip(found, self.outputs, strict=True):
            if [t.shape for t in mine] != [t.shape for t in wanted]:
                return "the network's outputs change their shape"
            apart = difference(mine, wanted)
            precision = own if rounded or not self.double else torch.float64
            tolerance = _TOLERANCES.get(precision, _COARSE)
            if not apart <= tolerance:
                return f"the network's outputs change (by {apart:.1e} of the largest)"
        return None


def outputs_of(model: nn.Module, batch: Any, forward: Forward | None) -> list[Tensor]:
    """All floating tensors that the network returns, in eval mode."""
    with evaluating(model):
        # Networks may write into what they are given.
        result = run(model, map_tensors(batch, Tensor.clone), forward)
    found = list(tensors_of(result)) or list(tensors_of(getattr(result, "__dict__", None)))
    return [tensor for tensor in found if tensor.is_floating_point()]


def difference(mine: Sequence[Tensor], wanted: Sequence[Tensor]) -> float:
    """Largest absolute difference over the largest finite number, or over 1 if that is smaller."""
    worst = 0.0
    for a, b in zip(mine, wanted, strict=True):
        same = (a == b) | (a.isnan() & b.isnan())
        if bool(same.all()):
            continue
        apart = torch.where(same, torch.zeros_like(a), (a - b).abs())
        largest = b[b.isfinite()].abs().max().item() if bool(b.isfinite().any()) else 1.0
        found = apart.max().item() / max(1.0, largest)
        worst = max(worst, found if found == found else float("inf"))  # NaN on one side only
    return worst


def first_images(batch: Any, count: int = 2) -> Any:
    """The batch cut to its first images."""
    size = size_of(batch)
    return map_tensors(batch, lambda t: t[:count] if t.ndim and t.shape[0] == size else t)


def _reason(error: ModelError) -> str:
    cause = error.__cause__
    return f"{type(cause).__name__}: {cause}" if cause is not None else str(error)

"""Exchange kernels by what gradients say of them: which stay, not what they weigh.

Scores look at one layer at a time, at a thousand images, at the network as it was or as it is up to
that layer. What a whole pruned network makes of many more images only its outputs tell. So the
chosen masks are put on the dense weights, and every connection is given a place in the order of its
layer, from 1 (best) over 0 (where the layer is cut) to −1. The gradient of

    T² · KL(dense/T ‖ pruned/T),  T = 4,

by a connection's gate, which is 1 or 0, moves its place, whether it is kept or not (straight
through the cut; Bengio et al. 2013), and after every batch each layer keeps as many connections as
before, those that are placed best by then. Weights are never changed, labels never read, and every
image is looked at once: seen several times, a few images teach masks that serve these images alone
(docs/research.md).

BatchNorm takes the statistics of each batch meanwhile, as in training, so batches must be mixed.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.utils import parametrize

from snacs.network.batches import Forward, evaluating, logits_of, move, run, size_of
from snacs.network.masking import bake_, spread
from snacs.values import BoolArray, FloatArray

RATE = 0.005
"""How far a place moves per batch at first, of the length of the order (Adam); then as a cosine
down to 0. On ResNet56 0.01 measured alike over 100 batches, 0.03 worse over 50."""
DECAYS = (0.9, 0.99)
"""Of Adam's means: there are few batches, so it forgets faster than usual."""
TEMPERATURE = 4.0
"""As in the recipes: dense outputs are sure of training images, and say little at T = 1."""


class Gate(nn.Module):
    """Keeps the best placed connections of a weight, as many as at first; gradients move places.

    >>> gate = Gate(np.array([[3.0, 1.0, 2.0]]), np.array([[True, False, True]]))
    >>> with torch.no_grad():
    ...     gate.place += torch.tensor([[0.0, 1.0, 0.0]])
    >>> gate(torch.ones(1, 3)).tolist(), gate.keep.tolist()
    ([[1.0, 1.0, 0.0]], [[True, True, False]])
    """

    protected: Tensor

    def __init__(
        self, scores: FloatArray, keep: BoolArray, protected: BoolArray | None = None
    ) -> None:
        super().__init__()
        self.kept = int(np.sum(keep))
        # What stays comes before what goes: a mask may differ from the cut of its scores.
        order = np.lexsort((np.ravel(scores), np.ravel(keep)))
        places = np.empty(order.size)
        places[order] = (np.arange(order.size) - (order.size - self.kept) + 0.5) / order.size
        self.place = nn.Parameter(torch.from_numpy(places.reshape(np.shape(scores))).float())
        rows = np.zeros(len(scores), dtype=bool) if protected is None else protected
        self.register_buffer("protected", torch.from_numpy(np.array(rows))[:, None])

    @property
    def keep(self) -> BoolArray:
        """(c_out, c_in): True stays."""
        found: BoolArray = self._cut().cpu().numpy()
        return found

    def _cut(self) -> Tensor:
        flat = self.place.detach().masked_fill(self.protected, math.inf).flatten()
        keep = torch.zeros_like(flat, dtype=torch.bool)
        keep[flat.topk(self.kept).indices] = True
        return keep.reshape(self.place.shape)

    def forward(self, weight: Tensor) -> Tensor:
        gate = self._cut().to(weight) + (self.place - self.place.detach()).to(weight)
        return weight * spread(gate, weight)

    def right_inverse(self, weight: Tensor) -> Tensor:
        return weight


def exchange(
    model: nn.Module,
    batches: Sequence[Any],
    masks: Mapping[str, BoolArray],
    scores: Mapping[str, FloatArray],
    *,
    protected: Mapping[str, BoolArray],
    forward: Forward | None = None,
    progress: Callable[[int, int, str], None] | None = None,
) -> tuple[dict[str, FloatArray], list[str]]:
    """(c_out, c_in) scores by layer: each connection's place at the end, the lowest one 0.

    Parameters
    ----------
    model : the dense network; it is left as it is.
    batches : each is looked at once. One that is smaller than the first is left out, since its
        statistics are not those of the others.
    masks, scores : what stays at first, and the order to begin with.
    protected : (c_out,) filters by layer of which nothing goes.

    Returns
    -------
    scores, notes
        If nothing can be learnt, the scores that were given, and a note that says why.
    """
    whole = [batch for batch in batches if size_of(batch) == size_of(batches[0])]
    dense, pruned = copy.deepcopy(model), copy.deepcopy(model)
    bake_(dense)
    bake_(pruned)
    pruned.requires_grad_(False)
    gates: dict[str, Gate] = {}
    for name, keep in masks.items():
        module = pruned.get_submodule(name)
        gates[name] = Gate(scores[name], keep, protected.get(name))
        gates[name].to(next(module.parameters()).device)
        parametrize.register_parametrization(module, "weight", gates[name])
    places = [gate.place for gate in gates.values()]
    adam = torch.optim.Adam(places, lr=RATE, betas=DECAYS)
    with evaluating(dense), _learning(pruned):
        for number, batch in enumerate(whole):
            adam.param_groups[0]["lr"] = RATE * (1 + math.cos(math.pi * number / len(whole))) / 2
            loss = _loss(pruned, dense, move(batch, pruned), forward)
            if not loss.requires_grad or not bool(torch.isfinite(loss)):
                why = "finite" if loss.requires_grad else "differentiable"
                return dict(scores), [f"No kernels were exchanged: the outputs are not {why}."]
            adam.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            adam.step()
            if progress is not None:
                progress(number + 1, len(whole), f"KL {float(loss.detach()):.3f}")
    new = sum(int((gates[name].keep & ~keep).sum()) for name, keep in masks.items())
    of = sum(int(keep.sum()) for keep in masks.values())
    note = f"{new:,} of {of:,} kept connections are others after {len(whole)} batches."
    found = {name: gate.place.detach().double().cpu().numpy() for name, gate in gates.items()}
    return {name: place - place.min() for name, place in found.items()}, [note]


def _loss(pruned: nn.Module, dense: nn.Module, batch: Any, forward: Forward | None) -> Tensor:
    with torch.no_grad():
        wanted = logits_of(run(dense, batch, forward)) / TEMPERATURE
    found = logits_of(run(pruned, batch, forward)) / TEMPERATURE
    both = (functional.log_softmax(found, 1), functional.log_softmax(wanted, 1))
    return functional.kl_div(*both, reduction="batchmean", log_target=True) * TEMPERATURE**2


@contextmanager
def _learning(model: nn.Module) -> Iterator[None]:
    """BatchNorm as in training, all else as in use; inside, gradients are taken."""
    model.eval()
    for module in model.modules():
        if isinstance(module, _BatchNorm) and module.track_running_stats:
            module.train()
    with torch.enable_grad(), torch.compiler.set_stance("force_eager"):
        yield

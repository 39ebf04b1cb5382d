"""A physically smaller network with the same outputs.

:func:`compact` takes out filters that nobody needs, with everything that belongs to them: columns
of the layers behind, BatchNorm channels, their share of a residual stream, a concatenation, a
Flatten, a group, a padded shortcut. What is taken out together is found by watching one forward
pass (:mod:`snacs.network.compaction.wiring`), what is not needed by experiment
(:mod:`snacs.network.compaction.probing`), and the result is compared with the network that went in:
a removal that does not hold is undone and listed.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from torch import Tensor, nn

from snacs.errors import InputError, ModelError
from snacs.network.batches import Forward, move
from snacs.network.compaction.checking import Checker, difference, first_images, outputs_of
from snacs.network.compaction.cutting import Cut, cut_, plain_copy, plan_cut
from snacs.network.compaction.deciding import Decider, Streams, find_streams
from snacs.network.compaction.folding import fold_batchnorm as fold
from snacs.network.compaction.probing import Probe, alive_of, probe
from snacs.network.compaction.report import CompactReport, LayerChange, Removal, describe_left
from snacs.network.compaction.rewriting import CannotRewrite, Edits, find_edits, rewrite_
from snacs.network.compaction.wiring import Wiring, watch
from snacs.values import BoolArray

__all__ = ["CompactReport", "LayerChange", "Removal", "compact", "compact_report"]

_reports: WeakKeyDictionary[nn.Module, CompactReport] = WeakKeyDictionary()


def compact(
    model: nn.Module,
    example: Any,
    *,
    forward: Forward | None = None,
    fold_batchnorm: bool = False,
) -> nn.Module:
    """A copy of the network without its dead filters and without channels that nobody reads.

    Parameters
    ----------
    model : nn.Module
        Masked by :func:`snacs.apply_`, baked, or with zeros from anywhere. It is not changed.
    example : (x, y), x, dict, …
        A batch as the network takes it; two images are enough.
    forward : function of model and batch, optional
        How to call the network, where ``model(x)`` is not it.
    fold_batchnorm : bool
        Fold each BatchNorm that follows a layer directly into it. For inference: a folded network
        cannot be trained as before.

    Returns
    -------
    nn.Module
        The same classes, names and keys, with smaller tensors and without masks. Only where a
        forward has channel counts written into it (a padded shortcut, ``x.view(-1, 512)``) the
        module with that forward is replaced by its ``torch.fx`` graph with corrected counts,
        traced in eval mode. Outputs equal the masked network's to 1e-5 of the largest.
        :func:`compact_report` says what was removed, what was not, and why.

    Examples
    --------
    >>> import torch
    >>> model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    >>> with torch.no_grad():
    ...     _ = model[0].weight[1].zero_(), model[0].bias[1].zero_()
    >>> compact(model, torch.randn(2, 3))
    Sequential(
      (0): Linear(in_features=3, out_features=3, bias=True)
      (1): ReLU()
      (2): Linear(in_features=3, out_features=2, bias=True)
    )
    """
    base = plain_copy(model)
    batch = first_images(move(example, base))
    checker = Checker.of(base, batch, forward)
    job = _Job(base, batch, forward, checker)
    small, report = job.run()
    folded: list[str] = []
    notes = list(report.notes)
    if fold_batchnorm:
        small, folded, more = fold(small, batch, checker, forward=forward)
        notes += more
    largest = difference(outputs_of(small, batch, forward), outputs_of(base, batch, forward))
    _restore_modes(small, model)
    _reports[small] = report.with_outcome(folded=folded, notes=notes, difference=largest)
    return small


def compact_report(model: nn.Module) -> CompactReport:
    """What :func:`compact` did to make this network; kept as long as the network lives."""
    if model not in _reports:
        raise InputError(
            "There is no compaction report for this network: give the very object that "
            "snacs.compact returned, not a copy of it or the network that went in."
        )
    return _reports[model]


def _restore_modes(small: nn.Module, model: nn.Module) -> None:
    modes = {name: module.training for name, module in model.named_modules()}
    for name, module in small.named_modules():
        module.training = modes.get(name, model.training)


@dataclass(frozen=True, eq=False)
class _Attempt:
    model: nn.Module
    cut: Cut
    edits: Edits


class _Job:
    """One compaction: the facts about the network, and the search for what holds."""

    def __init__(
        self, base: nn.Module, batch: Any, forward: Forward | None, checker: Checker
    ) -> None:
        self.base, self.batch, self.forward, self.checker = base, batch, forward, checker
        self.wiring: Wiring = watch(base, batch, forward=forward)
        layers = {layer.name: layer.module for layer in self.wiring.trace.layers}
        self.probe: Probe = probe(base, layers, batch, raw=self.wiring.raw(), forward=forward)
        self.streams: Streams = find_streams(base, self.wiring)
        self.decider = Decider.of(base, self.streams, self.probe)

    def run(self) -> tuple[nn.Module, CompactReport]:
        undone: dict[int, str] = {}
        removals: list[Removal] = []
        while True:
            gone, kept = self.decider.decide(undone)
            attempt = self.attempt(gone)
            if isinstance(attempt, _Attempt):
                return attempt.model, self.report(attempt, kept, removals)
            layers, numbers, reason = self.culprit(gone, undone, attempt)
            undone.update((number, f"its removal was undone: {reason}") for number in numbers)
            names = [name for name in self.wiring.readers if name in layers]  # no padding
            rows = [np.isin(self.streams.rows[name], list(numbers)) for name in names]
            removals.append(Removal(tuple(names), sum(int(r.sum()) for r in rows), reason))

    def attempt(self, gone: BoolArray) -> _Attempt | str:
        """A network without these streams, or why there is none."""
        cut = plan_cut(self.base, self.streams, gone, self.probe)
        candidate = copy.deepcopy(self.base)
        cut_(candidate, cut)
        reason = self.checker.fails(candidate, rounded=bool(cut.constants))
        if reason is None:
            return _Attempt(candidate, cut, {})
        try:
            edits = find_edits(
                self.base, self.batch, self.wiring.calls, self.streams, gone, self.forward
            )
            if not edits:
                return reason
            candidate = rewrite_(candidate, edits)
        except CannotRewrite as error:
            return f"{reason}; {error}"
        reason = self.checker.fails(candidate, rounded=bool(cut.constants))
        return _Attempt(candidate, cut, edits) if reason is None else reason

    def culprit(
        self, gone: BoolArray, undone: dict[int, str], why: str
    ) -> tuple[frozenset[str], set[int], str]:
        """The first bundle whose removal, on top of those before it, does not hold."""
        bundles = self.streams.bundles(gone)
        if not bundles:
            raise ModelError(f"A mere copy of the network does not do as the network does: {why}.")
        low, high = 0, len(bundles)  # so many bundles hold; so many do not
        while high - low > 1:
            middle = (low + high) // 2
            later = {number: "" for _, numbers in bundles[middle:] for number in numbers}
            outcome = self.attempt(self.decider.decide({**undone, **later})[0])
            if isinstance(outcome, str):
                high, why = middle, outcome
            else:
                low = middle
        layers, numbers = bundles[high - 1]
        return layers, numbers, why

    def report(
        self, attempt: _Attempt, kept: dict[int, str], removals: list[Removal]
    ) -> CompactReport:
        changes = tuple(
            _change(name, self.base.get_submodule(name), attempt) for name in self.wiring.readers
        )
        return CompactReport(
            layers=changes,
            undone=tuple(removals),
            left=tuple(describe_left(self.base, self.streams, self.probe, attempt.cut.rows, kept)),
            rewritten=tuple(sorted(attempt.edits)),
            constants={name: int((c != 0).sum()) for name, c in attempt.cut.constants.items()},
            notes=self.probe.notes,
        )


def _change(name: str, before: nn.Module, attempt: _Attempt) -> LayerChange:
    after = attempt.model.get_submodule(name)
    old: Tensor = before.weight  # type: ignore[assignment]
    new: Tensor = after.weight  # type: ignore[assignment]
    return LayerChange(
        name=name,
        filters=int(old.shape[0]),
        filters_left=int(new.shape[0]),
        channels=len(attempt.cut.columns[name]),
        channels_left=int(attempt.cut.columns[name].sum()),
        weights=old.numel(),
        weights_left=new.numel(),
        dead=int((~alive_of(before).any(axis=1)).sum()),
    )

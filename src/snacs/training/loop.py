"""One explicit training loop, on ``accelerate``, that can be killed at any moment.

After every epoch a checkpoint is written; the same call again continues from the last finished
epoch and ends with the same bits as a run that was never interrupted. For that, everything random
is seeded from (seed, epoch): a shuffling ``DataLoader`` is covered; other data with an order of its
own should be given as a function of the epoch.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator  # type: ignore[import-untyped]
from torch import Tensor, nn

from snacs.errors import InputError, ModelError, RunFolderError
from snacs.network.batches import Forward, logits_of, map_tensors, move, run
from snacs.network.cost import accuracy
from snacs.training import checkpoints
from snacs.training.determinism import borrowed_randomness, seed_epoch, seed_loader
from snacs.training.history import EpochRow, History, ProgressRow
from snacs.training.layout import channels_last, laid_out
from snacs.training.losses import labels_for, loss_of
from snacs.training.machine import length_of, machine_for, modes_restored, shard
from snacs.training.recipes import Recipe
from snacs.training.start import Start

Data = Iterable[Any] | Callable[[int], Iterable[Any]]
CHECKED = 1000
"""Training images of an epoch that tell whether to go back towards the start."""


def train_(
    model: nn.Module,
    train: Data,
    *,
    recipe: Recipe,
    validation: Iterable[Any] | None = None,
    teacher: nn.Module | None = None,
    folder: Path | str | None = None,
    seed: int = 0,
    forward: Forward | None = None,
    progress: Callable[[ProgressRow], None] | None = None,
    best: bool = True,
    accelerator: Mapping[str, Any] | None = None,
) -> History:
    """Train or retrain ``model`` in place; masks on it hold.

    Parameters
    ----------
    train : iterable of labelled batches, read once per epoch, or a function from the epoch (from 0)
        to such an iterable.
    validation : iterable of labelled batches, optional
        Measured after every epoch. With it the best epoch is the result (``best=False``: the last).
    teacher : nn.Module, optional
        The dense network, if the recipe distills.
    folder : path, optional
        For checkpoints. The same call continues there; a folder of another run is refused.
    seed : int
        Seeds every epoch. The caller's own random states are not touched.
    progress : callable, optional
        Gets a :class:`ProgressRow` after every batch and every epoch.
    accelerator : mapping, optional
        Options for ``accelerate.Accelerator``, such as ``{"mixed_precision": "bf16"}``.
    """
    _check(train, validation, recipe, teacher)
    place = None if folder is None else Path(folder)
    with ExitStack() as stack:
        stack.enter_context(borrowed_randomness())
        stack.enter_context(modes_restored(model))
        stack.enter_context(laid_out(model, channels_last=recipe.channels_last))
        machine = stack.enter_context(machine_for(model, accelerator or {}))
        if teacher is not None:
            stack.enter_context(modes_restored(teacher))
            stack.enter_context(laid_out(teacher, channels_last=recipe.channels_last))
            teacher.eval()
        loop = _Loop(model, machine, recipe, forward, teacher, progress)
        return loop.run(train, validation, place, seed, best=best)


class _Loop:
    """The state of one call of :func:`train_`."""

    def __init__(
        self,
        model: nn.Module,
        machine: Accelerator,
        recipe: Recipe,
        forward: Forward | None,
        teacher: nn.Module | None,
        progress: Callable[[ProgressRow], None] | None,
    ) -> None:
        parameters = [p for p in model.parameters() if p.requires_grad]
        if not parameters:
            raise InputError("The network has no parameters that require gradients.")
        self.model, self.machine, self.recipe = model, machine, recipe
        self.forward, self.teacher, self.progress = forward, teacher, progress
        self.optimizer = torch.optim.SGD(
            parameters,
            lr=recipe.learning_rate,
            momentum=recipe.momentum,
            weight_decay=recipe.weight_decay,
            nesterov=recipe.nesterov,
        )
        self.prepared, self.stepper = machine.prepare(model, self.optimizer)
        if teacher is not None:
            teacher.to(machine.device)
        self.start = Start(model, recipe.start_share)
        self.rows: list[EpochRow] = []
        self.best: dict[str, Any] | None = None
        self.clock = (0.0, 0)  # when this call began, and after how many epochs

    def run(
        self,
        train: Data,
        validation: Iterable[Any] | None,
        folder: Path | None,
        seed: int,
        *,
        best: bool,
    ) -> History:
        notes = [self.recipe.note] if self.recipe.note else []
        chosen_by = "validation" if validation is not None and best else "last epoch"
        key = checkpoints.key_of(self.model, self.recipe.as_dict(), seed, chosen_by)
        start = checkpoints.sample(self.model)
        if folder is not None:
            notes += self._resume(folder, key, start)
        resumed, began = len(self.rows), time.perf_counter()
        self.clock = began, resumed
        for epoch in range(resumed, self.recipe.epochs):
            row = self._epoch(train, epoch, seed, validation)
            self.rows.append(row)
            if row.validation is not None and best:
                with self.start.applied(self.model):
                    self._remember(row)
            if folder is not None:
                if self.machine.is_main_process:
                    checkpoints.save(folder, epoch + 1, self._state(key, start))
                self.machine.wait_for_everyone()
        chosen = len(self.rows)
        if self.best is not None and best:
            self.model.load_state_dict(self.best["model"])
            chosen = self.best["epoch"]
        else:
            self.start.apply_(self.model)
        return History(tuple(self.rows), resumed, chosen, tuple(notes))

    def _epoch(
        self,
        train: Data,
        epoch: int,
        seed: int,
        validation: Iterable[Any] | None,
    ) -> EpochRow:
        start = time.perf_counter()
        mixed = seed_epoch(seed, epoch)
        data = train if isinstance(train, Iterable) else train(epoch)
        seed_loader(data, epoch, mixed)
        total = length_of(data, self.machine)
        sums = torch.zeros(3, dtype=torch.float64)  # loss, right answers, images
        rate, number = self.recipe.learning_rate, 0
        some: list[Any] = []
        self.prepared.train()
        for number, batch in enumerate(shard(data, self.machine), start=1):
            # The middle of a step: neither the first nor the last one is spent at a rate of 0.
            position = epoch + (0.5 if total is None else (number - 0.5) / total)
            rate = self.recipe.rate(position)
            if self.start.share and sums[2] < CHECKED:
                some.append(batch)
            sums += self._step(batch, rate, f"epoch {epoch + 1}, batch {number}")
            self._report(epoch, number, total, sums, None)
        if number == 0:
            raise InputError(
                f"The training data gave no batch in epoch {epoch + 1}. Give a list, a DataLoader "
                "or a function of the epoch; a generator can be read only once."
            )
        if self.machine.num_processes > 1:
            sums = self.machine.reduce(sums.to(self.machine.device, torch.float32)).cpu()
        self.start.ask(self.model, lambda: self._standing(some))
        found = None
        if validation is not None:
            with self.start.applied(self.model):
                found = accuracy(self.model, validation, forward=self.forward).fraction
        self._report(epoch, number, number, sums, found)
        loss, right, count = sums.tolist()
        seconds = time.perf_counter() - start
        return EpochRow(epoch + 1, loss / count, right / count, found, rate, seconds)

    def _step(self, batch: Any, rate: float, where: str) -> Tensor:
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.stepper.zero_grad()
        loss, logits, labels = self._loss(self.prepared, batch)
        value = float(loss.detach())
        if not math.isfinite(value):
            raise ModelError(
                f"The loss became {value} in {where}. Lower the learning rate (now {rate:g}), add "
                "a warm-up, set clip=1.0 in the recipe, and check the images for NaN. The last "
                "finished epoch is in the checkpoint folder, if one was given."
            )
        self.machine.backward(loss)
        if self.recipe.clip is not None:
            self.machine.clip_grad_norm_(self.prepared.parameters(), self.recipe.clip)
        self.stepper.step()
        right = int((logits.detach().argmax(1) == labels).sum())
        return torch.tensor([value * len(labels), right, len(labels)], dtype=torch.float64)

    def _loss(self, network: nn.Module, batch: Any) -> tuple[Tensor, Tensor, Tensor]:
        """The recipe's loss, the logits and the labels of a batch."""
        batch = move(batch, self.model)
        if self.recipe.channels_last:
            batch = map_tensors(batch, channels_last)
        taught = None
        if self.teacher is not None:
            with torch.no_grad():
                taught = logits_of(run(self.teacher, move(batch, self.teacher), self.forward))
        with self.machine.autocast():
            logits = logits_of(run(network, batch, self.forward))
        labels = labels_for(batch, logits)
        return loss_of(logits, labels, self.recipe, taught), logits, labels

    def _report(
        self, epoch: int, batch: int, batches: int | None, sums: Tensor, validation: float | None
    ) -> None:
        if self.progress is None or not self.machine.is_main_process:
            return
        began, resumed = self.clock
        done = epoch + (0.0 if batches is None else batch / batches)
        left = None
        if done > resumed:
            pace = (time.perf_counter() - began) / (done - resumed)
            left = pace * (self.recipe.epochs - done)
        loss, accuracy = (sums[:2] / sums[2]).tolist()
        self.progress(
            ProgressRow(
                epoch + 1, self.recipe.epochs, batch, batches, loss, accuracy, validation, left
            )
        )

    def _standing(self, batches: list[Any]) -> float:
        """The loss of these batches as the network stands, in eval mode, over all processes."""
        with modes_restored(self.model), torch.no_grad():
            self.model.eval()
            found = [self._loss(self.model, batch) for batch in batches]
        total = torch.tensor(sum(float(loss) * len(labels) for loss, _, labels in found))
        if self.machine.num_processes > 1:
            total = self.machine.reduce(total.to(self.machine.device))
        return float(total)

    def _remember(self, row: EpochRow) -> None:
        if self.best is None or (row.validation or 0.0) > self.best["validation"]:
            self.best = {
                "epoch": row.epoch,
                "validation": row.validation,
                "model": {k: v.detach().cpu().clone() for k, v in self.model.state_dict().items()},
            }

    def _state(self, key: Mapping[str, Any], start: Tensor) -> dict[str, Any]:
        return {
            "key": dict(key),
            "start": start,
            "rows": [asdict(row) for row in self.rows],
            "model": dict(self.model.state_dict()),
            "optimizer": self.optimizer.state_dict(),
            "best": self.best,
            "going back": self.start.state(),
        }

    def _resume(self, folder: Path, key: Mapping[str, Any], start: Tensor) -> list[str]:
        state, notes = checkpoints.load(folder, key)
        if state is None:
            return notes
        # Repair may round differently on another machine, so equal bits are not asked for.
        if not torch.allclose(state["start"], start, rtol=1e-2, atol=1e-3):
            raise RunFolderError(
                f"The checkpoints in {folder} come from a run that began with other weights. Give "
                "another folder, or delete this one to start again."
            )
        self.rows = [EpochRow(**row) for row in state["rows"]]
        self.best = state["best"]
        self.start.restore(state["going back"])
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        return notes


def _check(
    train: Data, validation: Iterable[Any] | None, recipe: Recipe, teacher: nn.Module | None
) -> None:
    if teacher is None and recipe.distillation > 0:
        raise InputError("The recipe distills: pass teacher=, the dense network.")
    if teacher is not None and recipe.distillation == 0:
        raise InputError(
            "A teacher was given, but the recipe's 'distillation' is 0. Set it, to 0.5."
        )
    for name, data in (("training", train), ("validation", validation)):
        if isinstance(data, Iterator) and recipe.epochs > 1:
            raise InputError(
                f"The {name} data can be read only once, but there are {recipe.epochs} epochs. "
                "Give a list, a DataLoader or (for training) a function of the epoch."
            )

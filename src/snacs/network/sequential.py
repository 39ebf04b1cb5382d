"""The least-squares pass of repair: all masked layers, in order, in one run of the network.

Each layer's kept weights are solved so that its output, computed from the inputs that the already
repaired network gives it, matches the dense layer's output on dense inputs. Where that output is
added to a residual stream (``Structure.sums``), the target also makes up for the error that the
stream carries already:

    target = dense output + (dense stream − pruned stream) / BatchNorm scale

What the network makes of the output, a ReLU and the coupling of the filters, is taken into account
by :mod:`snacs.network.refining`.

Such a layer is solved when the addition is reached, because only then the stream is known; its
operand of the sum is then computed again from the new weights.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from snacs.errors import InputError, ModelError
from snacs.network import leastsquares, lockstep, refining
from snacs.network.batches import Forward, run, size_of
from snacs.network.importance import output_coupling
from snacs.network.leastsquares import Solution
from snacs.network.masking import mask_of, original_of
from snacs.network.moments import Moments
from snacs.network.refining import Reading
from snacs.network.scales import scale_of, shift_of, sign_of
from snacs.network.tasks import Task, find_tasks
from snacs.network.trace import is_addition
from snacs.values import Structure, Sum

Progress = Callable[[int, int, str], None]


@dataclass(frozen=True)
class LayerRepair:
    """Squared error of a layer's output against the dense one, relative to its energy."""

    name: str
    before: float
    after: float


Settle = Callable[[Task, Moments], LayerRepair]


def solve_layers_(
    model: nn.Module,
    dense: nn.Module,
    batches: Sequence[Any],
    *,
    structure: Structure,
    forward: Forward | None = None,
    ridge: float = 1e-3,
    refine: bool = False,
    settle: Settle | None = None,
    progress: Progress | None = None,
) -> tuple[list[LayerRepair], list[str]]:
    """Solve all masked layers of ``model``, in eval mode; returns errors and what was left, why.

    ``refine`` is as in :func:`snacs.network.repair.repair_`.

    ``settle`` may deal with each layer in another way than by least squares under its mask
    (:mod:`snacs.network.choosing`). The caller restores the weights if this raises.
    """
    tasks, notes = find_tasks(model, dense, structure, last=refine)
    coupling = _coupling(dense, structure, batches, forward, notes) if refine else {}

    def solve(task: Task, moments: Moments) -> LayerRepair:
        reading = Reading(coupling.get(task.name), sign_of(task, dense))
        return solve_task_(task, moments, ridge, reading if refine else None)

    here = threading.local()
    sums = {task.sum.call: task.sum for task in tasks.values() if task.sum is not None}

    def job(network: nn.Module, batch: Any) -> None:
        here.saved, here.replaying = {}, False
        # Both are set per thread, so they are set in here.
        with torch.no_grad(), _Additions(sums, partial(_at_sum, network, here)):
            run(network, batch, forward)

    pairs = [
        (lockstep.Worker(partial(job, dense, batch)), lockstep.Worker(partial(job, model, batch)))
        for batch in batches
    ]
    images = sum(size_of(batch) for batch in batches)
    done: list[LayerRepair] = []
    threads = [worker for pair in pairs for worker in pair]
    with _hooks(model, dense, tasks, here), lockstep.closing(threads):
        while (found := _gather(pairs, tasks, dense, images, hold=refine)) is not None:
            task, moments = found
            _check_finite(task, moments)
            done.append((settle or solve)(task, moments))
            if progress is not None:
                progress(len(done), len(tasks), task.name)
    reached = {layer.name for layer in done}
    notes += [f"{name}: not reached by the forward pass." for name in tasks if name not in reached]
    return done, notes


def _coupling(
    dense: nn.Module,
    structure: Structure,
    batches: Sequence[Any],
    forward: Forward | None,
    notes: list[str],
) -> dict[str, Tensor]:
    """How the dense network reads each layer's filters together; nothing if that cannot be had."""
    try:
        return output_coupling(dense, structure, batches, seed=0, forward=forward)
    except InputError:
        notes.append("The outputs cannot be differentiated: filters were solved one by one.")
        return {}


class _Additions(TorchFunctionMode):
    """Counts additions as the tracer does and reports those that a layer waits for."""

    def __init__(
        self, sums: Mapping[int, Sum], report: Callable[[Sum, Sequence[Any]], None]
    ) -> None:
        super().__init__()
        self._sums, self._report, self._count = sums, report, 0

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if is_addition(func):
            found = self._sums.get(self._count)
            self._count += 1
            if found is not None:
                named = kwargs or {}
                self._report(found, [*args, *(named[k] for k in ("input", "other") if k in named)])
        return func(*args, **(kwargs or {}))


def _at_sum(network: nn.Module, here: Any, found: Sum, operands: Sequence[Any]) -> None:
    """Hold before the addition; in the pruned network, bring the layer's operand up to date."""
    saved = here.saved.pop(found.layer, None)
    if saved is None:
        return
    lockstep.pause(found.layer, (saved, operands[1 - found.operand]))
    if here.pruned:
        here.replaying = True
        try:
            fresh = network.get_submodule(found.layer)(saved)
            if found.norm is not None:
                fresh = network.get_submodule(found.norm)(fresh)
        finally:
            here.replaying = False
        operands[found.operand].copy_(fresh.reshape(operands[found.operand].shape))


@contextmanager
def _hooks(
    model: nn.Module, dense: nn.Module, tasks: Mapping[str, Task], here: Any
) -> Iterator[None]:
    """Pruned layers show what enters them, dense ones what leaves them."""

    def show(name: str, tensor: Tensor, *, pruned: bool) -> None:
        if here.replaying:
            return
        here.pruned = pruned
        if tasks[name].sum is None:
            lockstep.pause(name, (tensor, None))
        else:
            here.saved[name] = tensor

    def entering(name: str) -> Any:
        def hook(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            show(name, args[0] if args else kwargs["input"], pruned=True)

        return hook

    def leaving(name: str) -> Any:
        return lambda _module, _inputs, output: show(name, output, pruned=False)

    handles = []
    try:
        for name in tasks:
            module, twin = model.get_submodule(name), dense.get_submodule(name)
            handles.append(module.register_forward_pre_hook(entering(name), with_kwargs=True))
            handles.append(twin.register_forward_hook(leaving(name)))
        yield
    finally:
        for handle in handles:
            handle.remove()


def _gather(
    pairs: Sequence[tuple[lockstep.Worker, lockstep.Worker]],
    tasks: Mapping[str, Task],
    dense: nn.Module,
    images: int,
    *,
    hold: bool,
) -> tuple[Task, Moments] | None:
    """Run all passes to their next stop and sum up what they show; None at the end.

    ``hold`` keeps samples of layers that a ReLU reads, to solve them again with other targets.
    """
    task: Task | None = None
    moments: Moments | None = None
    scale: Tensor | None = None
    shift: Tensor | None = None
    ended = False
    for number, (dense_worker, pruned_worker) in enumerate(pairs):
        for_dense, for_pruned = dense_worker.advance(), pruned_worker.advance()
        if for_dense is None and for_pruned is None and (ended or number == 0):
            ended = True
            continue
        if number == 0 and for_pruned is not None:
            task = tasks[for_pruned.key]
            moments, scale = Moments(task.module, images=images), scale_of(task, dense)
            shift = shift_of(task, dense) if hold and task.rectified else None
        if (
            ended or task is None or moments is None or for_dense is None or for_pruned is None
            or for_dense.key != task.name or for_pruned.key != task.name
        ):  # fmt: skip
            raise ModelError(
                "The network took different paths for different batches (or for dense and pruned "
                "weights), so its layers cannot be treated in order. Plan with sequential=False, "
                "and do without least squares: repair=False (--no-repair)."
            )
        inputs, stream = for_pruned.payload
        target, dense_stream = for_dense.payload
        if scale is not None and isinstance(stream, Tensor) and isinstance(dense_stream, Tensor):
            target = target + (dense_stream - stream).reshape(target.shape) * scale
        zeros = None
        if shift is not None:
            zeros = shift.expand_as(target)
            if scale is not None and isinstance(stream, Tensor):
                zeros = zeros - stream.reshape(target.shape) * scale
        moments.add(inputs, target, zeros)
    return None if task is None or moments is None else (task, moments)


def _check_finite(task: Task, moments: Moments) -> None:
    if not moments.finite:
        raise ModelError(
            f"NaN or infinite activations reach layer {task.name!r}. Check the images and weights."
        )


def solve_task_(
    task: Task, moments: Moments, ridge: float, reading: Reading | None = None
) -> LayerRepair:
    """Write one layer's solution into the tensors under its masks."""
    weight = original_of(task.module)
    has_bias = getattr(task.module, "bias", None) is not None
    bias = original_of(task.module, "bias") if has_bias else None
    problem = leastsquares.problem_of(
        moments,
        weight.detach().reshape(len(weight), -1),
        task.keep,
        bias=bias,
        offset=has_bias or task.carrier is not None,
    )
    solution = leastsquares.solve(problem, ridge=ridge)
    if reading is not None:
        solution = refining.refine(problem, solution, reading)
    with torch.no_grad():
        _write_(task, weight, bias, solution)
    mask = mask_of(task.module)
    if mask is not None:
        mask.repaired.fill_(True)
    return LayerRepair(task.name, solution.before, solution.after)


def _write_(task: Task, weight: Tensor, bias: Tensor | None, solution: Solution) -> None:
    keep = torch.from_numpy(task.keep).to(weight.device).reshape(weight.shape)
    weight.copy_(torch.where(keep, solution.weight.to(weight).reshape(weight.shape), weight))
    live = torch.from_numpy(task.keep.any(axis=1)).to(weight.device)
    if bias is not None:
        bias.copy_(torch.where(live, solution.offset.to(bias), bias))
    elif task.carrier is not None and task.carrier.running_mean is not None:
        mean = task.carrier.running_mean
        mean.sub_(torch.where(live, solution.offset.to(mean), torch.zeros_like(mean)))

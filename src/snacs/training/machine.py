"""Where training runs: accelerate's machine, set up and cleaned away again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from typing import Any

import torch
from accelerate import Accelerator  # type: ignore[import-untyped]
from accelerate.state import (  # type: ignore[import-untyped]
    AcceleratorState,
    GradientState,
    PartialState,
)
from torch import nn
from torch.utils.data import DataLoader

from snacs.errors import InputError


def length_of(data: Any, machine: Accelerator) -> int | None:
    """Batches per epoch and process, where the data can tell."""
    try:
        count = len(data)
    except TypeError:
        return None
    processes: int = machine.num_processes
    return max(1, count // processes)


def shard(data: Any, machine: Accelerator) -> Iterator[Any]:
    """The batches of this process; an incomplete last round is dropped: all must step together."""
    world, rank = machine.num_processes, machine.process_index
    if world == 1:
        yield from data
        return
    if isinstance(data, DataLoader):
        yield from islice(machine.prepare_data_loader(data), max(1, len(data) // world))
        return
    batches = iter(data)
    while len(group := list(islice(batches, world))) == world:
        yield group[rank]


@contextmanager
def modes_restored(model: nn.Module) -> Iterator[None]:
    """Every module's own mode and the model's device are restored after."""
    modes = {module: module.training for module in model.modules()}
    first = next(model.parameters(), None)
    device = None if first is None else first.device
    try:
        with torch.enable_grad():
            yield
    finally:
        if device is not None:
            model.to(device)
        for module, mode in modes.items():
            module.training = mode


@contextmanager
def machine_for(model: nn.Module, options: Mapping[str, Any]) -> Iterator[Accelerator]:
    """An Accelerator; what it left in the process and on the model is taken away again."""
    fresh, alone = not AcceleratorState._shared_state, not PartialState._shared_state
    try:
        machine = Accelerator(**options)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"accelerate.Accelerator refused the options {dict(options)!r}: {error}"
        ) from error
    try:
        yield machine
    finally:
        machine.unwrap_model(model, keep_fp32_wrapper=False)
        model.__dict__.pop("_is_accelerate_prepared", None)
        if fresh:
            single = machine.num_processes == 1
            AcceleratorState._reset_state(reset_partial_state=alone and single)
            GradientState._reset_state()

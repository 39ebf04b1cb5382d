"""The ways to run a pruned network that are measured against each other."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from snacs.artifact import save, save_state_dict
from snacs.errors import InputError, ModelError
from snacs.network.compact import compact
from snacs.network.compaction.cutting import plain_copy
from snacs.runtime.compiled import Compiled
from snacs.runtime.compiled import compile as compile_network
from snacs.runtime.onnx import export

DENSE = "torch, dense"
SPARSE = "snacs, sparse"


@dataclass(frozen=True, eq=False)
class Contender:
    """One way to run the network.

    Attributes
    ----------
    call : runs it on a batch
    macs : multiply-adds per image that it computes
    file : what it is loaded from; None where the network cannot be written without its code
    bytes : of its weights on disk
    kind : "torch", "onnx" or "sparse", how a fresh process has to load the file
    """

    name: str
    call: Callable[[Tensor], Any]
    macs: int
    file: Path | None
    bytes: int | None
    kind: str


@dataclass(frozen=True, eq=False)
class Field:
    """All contenders, what is said about them, and the compiled network."""

    contenders: tuple[Contender, ...]
    notes: tuple[str, ...]
    fast: Compiled


def assemble(model: nn.Module, example: Tensor, folder: Path, *, onnx: bool) -> Field:
    """Build everything once; files go to ``folder``."""
    notes: list[str] = []
    plain = plain_copy(model)
    small = compact(plain, example).eval()
    fast = compile_network(small, example)
    whole, left = count_macs(plain, example), count_macs(small, example)
    kept = count_macs(small, example, kept=True)
    # A .snacs file leaves out what is pruned: plain weights are what the dense network takes.
    dense = save_state_dict(plain, folder / "dense.safetensors")
    file = _saved(plain, folder / "dense.snacs", example, notes)
    packed = _saved(small, folder / "compacted.snacs", example, notes)
    size = None if packed is None else packed.stat().st_size
    found = [
        Contender(DENSE, plain, whole, file, dense, "torch"),
        Contender("torch, compacted", small, left, packed, size, "torch"),
        Contender(SPARSE, fast, kept, packed, size, "sparse"),
    ]
    if onnx:
        for name, network, macs in (("dense", plain, whole), ("compacted", small, left)):
            path = folder / f"{name}.onnx"
            try:
                export(network, example, path, compact=False)
                call = session(path)
                size = path.stat().st_size
                found.append(Contender(f"onnxruntime, {name}", call, macs, path, size, "onnx"))
            except (InputError, ModelError) as error:
                notes.append(f"onnxruntime, {name}: {error}")
    return Field(tuple(found), tuple(dict.fromkeys(notes)), fast)


def count_macs(model: nn.Module, example: Tensor, *, kept: bool = False) -> int:
    """Multiply-adds per image of all convolutions and linear layers; ``kept``: without zeros."""
    total = 0

    def count(module: nn.Module, _: Any, output: Tensor) -> None:
        nonlocal total
        weight: Any = module.weight
        filters = output.shape[-1] if isinstance(module, nn.Linear) else output.shape[1]
        each = int(torch.count_nonzero(weight)) if kept else int(weight.numel())
        total += each * (output[0].numel() // filters)

    kinds = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.Linear)
    hooks = [m.register_forward_hook(count) for m in model.modules() if isinstance(m, kinds)]
    try:
        with torch.no_grad():
            model(example[:1])
    finally:
        for hook in hooks:
            hook.remove()
    return total


def session(path: Path) -> Callable[[Tensor], Any]:
    """An onnxruntime session with as many threads as torch has."""
    runtime = importlib.import_module("onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.inter_op_num_threads = 1
    made = runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    name = made.get_inputs()[0].name
    return lambda x: made.run(None, {name: x.numpy()})


def _saved(model: nn.Module, path: Path, example: Tensor, notes: list[str]) -> Path | None:
    saved = save(model, path, example=example)
    if saved.standalone:
        return Path(saved.path)
    notes.append(
        "This network cannot be loaded without its own code, so its memory was not measured."
    )
    return None

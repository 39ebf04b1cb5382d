"""``snacs.compile``: a pruned network on the CPU, faster by what was pruned."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from functools import partial
from typing import Any

import numba
import numpy as np
import torch
from torch import Tensor, fx, nn

from snacs.errors import InputError, ModelError
from snacs.network.batches import tensors_of
from snacs.network.compaction.cutting import plain_copy
from snacs.runtime.lowering import lower, trace
from snacs.runtime.program import Program, build
from snacs.runtime.running import Runner
from snacs.runtime.steps import Conv, Lowered, TorchStep
from snacs.runtime.timing import dense_seconds, seconds
from snacs.runtime.vectors import LANES

_TOLERANCE = 1e-4
"""Of the largest output: what sums in another order, and BatchNorm in the weights, may differ."""
_CLEARLY = 0.9
"""Torch's dense layer, or more than one thread, must take less than this share of the time that we
take without to be chosen."""


@dataclass(frozen=True)
class LayerChoice:
    """How one convolution or linear layer is run, and why.

    Attributes
    ----------
    runs : "sparse" (our kernels) or "dense" (torch)
    layout : "pixels" or "images", what a vector holds; "" where torch runs the layer
    macs, macs_kept : multiply-adds per image, of all weights and of those other than zero
    pixels, images, dense : measured seconds for the whole batch: our kernels in both layouts,
        torch's dense layer; NaN where it was not measured
    """

    name: str
    runs: str
    layout: str
    macs: int
    macs_kept: int
    pixels: float
    images: float
    dense: float


@dataclass(frozen=True, eq=False)
class _Choice:
    """What was decided for one batch size and number of threads."""

    runner: Runner
    layers: tuple[LayerChoice, ...]
    in_torch: dict[str, str]


class Compiled(nn.Module):
    """A network compiled by :func:`compile`; call it like the network, on float32 CPU tensors.

    How it runs is decided by measurement when a batch size is first seen (the example's at once),
    and kept: see :attr:`layers` and :attr:`in_torch`. Results do not depend on the number of
    threads, which is torch's at the time of the call.
    """

    def __init__(self, module: fx.GraphModule, example: Tensor) -> None:
        super().__init__()
        self.training = False
        # Not registered as a submodule: its weights live in the programs' tables.
        self._graph = [module]
        self._shape = tuple(example.shape[1:])
        self._lock = threading.Lock()
        self._lowered: dict[frozenset[str], Lowered] = {}
        self._programs: dict[tuple[frozenset[str], bool, int], Program] = {}
        self._choices: dict[tuple[int, int], _Choice] = {}
        self._example = example[:1].clone()
        self._dense: dict[tuple[Any, ...], float] = {}
        self._last = self._choice(example)

    def forward(self, x: Tensor) -> Any:
        x = self._checked(x)
        with self._lock:
            choice = self._choices.get((len(x), torch.get_num_threads()))
            if choice is None:
                with torch.no_grad():
                    choice = self._choice(x)
            self.__dict__["_last"] = choice  # a module's own way to set attributes takes longer
            if not choice.in_torch:
                return choice.runner(x)
            with torch.no_grad():
                return choice.runner(x)

    @property
    def layers(self) -> tuple[LayerChoice, ...]:
        """How each layer ran in the last call, with what was measured to decide it."""
        return self._last.layers

    @property
    def in_torch(self) -> dict[str, str]:
        """What torch runs, by its name in the traced network, and why."""
        return dict(self._last.in_torch)

    @property
    def bytes(self) -> int:
        """Memory of the last call's weights, tables and buffers."""
        return self._last.runner.bytes

    def extra_repr(self) -> str:
        runs = [layer.runs for layer in self.layers]
        parts = [f"{runs.count('sparse')} layers by sparse kernels"]
        if "dense" in runs:
            parts.append(f"{runs.count('dense')} by torch")
        return ", ".join(parts)

    def _checked(self, x: Tensor) -> Tensor:
        if not isinstance(x, Tensor) or x.dtype != torch.float32 or not x.is_cpu:
            kind = f"{x.dtype} on {x.device}" if isinstance(x, Tensor) else type(x).__name__
            raise InputError(f"A compiled network takes a float32 tensor on the CPU. Got {kind}.")
        if x.shape[1:] != self._shape or not len(x):
            raise InputError(
                f"This network was compiled for images of shape {self._shape}. "
                f"Got {tuple(x.shape)}; compile it again with an example of that shape."
            )
        return x

    def _lower(self, dense: frozenset[str]) -> Lowered:
        if dense not in self._lowered:
            self._lowered[dense] = lower(self._graph[0], self._example, dense=dense)
        return self._lowered[dense]

    def _runner(self, images: int, dense: frozenset[str], *, blocked: bool, threads: int) -> Runner:
        lowered = self._lower(dense)
        # Blocks that threads do apart are not divided further.
        sharing = threads if -(-images // (LANES if blocked else 1)) % threads else 1
        key = (dense, blocked, sharing)
        if key not in self._programs:
            self._programs[key] = build(lowered, images=blocked, threads=sharing)
        return Runner(
            self._graph[0],
            lowered,
            self._programs[key],
            images=images,
            threads=threads,
        )

    def _choice(self, x: Tensor) -> _Choice:
        key = (int(x.shape[0]), torch.get_num_threads())
        if key not in self._choices:
            self._choices[key] = self._choose(x)
        return self._choices[key]

    def _choose(self, x: Tensor) -> _Choice:
        """Measure both layouts and torch's dense layers, and take what is fastest."""
        images, none = int(x.shape[0]), frozenset[str]()
        allowed = torch.get_num_threads()
        runners = {
            (name, threads): self._runner(images, none, blocked=name == "images", threads=threads)
            for name in _LAYOUTS
            for threads in sorted({1, allowed})  # small networks are over before help comes
        }
        calls = {key: partial(runner, x) for key, runner in runners.items()}
        times = seconds(calls, least=0.03)
        # Helpers take a core from others, and must be woken first when they have slept.
        layout, threads = min(
            runners, key=lambda key: times[key] * (_CLEARLY if key[1] == 1 else 1.0)
        )
        runner, dense = runners[layout, threads], none
        profiles = {name: _by_layer(runners[name, allowed]) for name in _LAYOUTS}
        steps = {s.layer: s for s in self._lower(none).steps if isinstance(s, Conv)}
        by_torch = {name: self._dense_seconds(step, images) for name, step in steps.items()}
        ours = profiles[layout]
        slower = frozenset(
            name for name in steps if by_torch[name] < _CLEARLY * ours.get(name, 0.0)
        )
        if slower:
            # Going to torch and back costs time as well: the whole network decides.
            mixed = self._runner(images, slower, blocked=layout == "images", threads=threads)
            again = seconds({"ours": partial(runner, x), "mixed": partial(mixed, x)})
            if again["mixed"] < _CLEARLY * again["ours"]:
                runner, dense = mixed, slower
        rows = []
        for name, step in steps.items():
            weights, positions = step.weight.size, step.positions
            rows.append(
                LayerChoice(
                    name=name,
                    runs="dense" if name in dense else "sparse",
                    layout="" if name in dense else layout,
                    macs=weights * positions,
                    macs_kept=step.kept * positions,
                    pixels=profiles["pixels"].get(name, np.nan),
                    images=profiles["images"].get(name, np.nan),
                    dense=by_torch[name],
                )
            )
        in_torch = {
            str(part.node): part.reason
            for part in runner.lowered.parts
            if isinstance(part, TorchStep)
        }
        return _Choice(runner, tuple(rows), in_torch)

    def _dense_seconds(self, step: Conv, images: int) -> float:
        """Torch's dense layer; layers of one shape are measured once."""
        shapes = (step.x.channels, step.x.height, step.x.width, step.weight.shape)
        key = (images, torch.get_num_threads(), shapes, step.stride, step.padding, step.dilation)
        if key not in self._dense:
            self._dense[key] = dense_seconds(step, images)
        return self._dense[key]


_LAYOUTS = ("pixels", "images")


def _by_layer(runner: Runner) -> dict[str, float]:
    found: dict[str, float] = {}
    for layer, spent in zip(runner.program.layers, runner.profile(), strict=True):
        found[layer] = found.get(layer, 0.0) + float(spent)
    return found


def compile(model: nn.Module, example: Any) -> Compiled:
    """Compile a pruned network for the CPU.

    Convolutions and linear layers run over their kept kernels only, with BatchNorm, activation and
    residual sum done in passing. Layers where torch's dense ones are faster stay with torch, and so
    does everything that there is no kernel for; :attr:`Compiled.layers` and
    :attr:`Compiled.in_torch` say which and why.

    Parameters
    ----------
    model : nn.Module
        Masked, baked, compacted or dense; it is copied as it is now, and not changed.
    example : x, (x, y), …
        A batch as the network takes it, of the size that matters most.

    Returns
    -------
    Compiled
        Outputs equal the network's in eval mode to 1e-4 of the largest, which is checked here.

    Examples
    --------
    >>> model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 4, 1))
    >>> x = torch.randn(2, 3, 6, 6)
    >>> fast = compile(model, x)
    >>> bool(torch.allclose(fast(x), model(x), atol=1e-5))
    True
    """
    if getattr(numba.config, "DISABLE_JIT", False):
        raise InputError("compile needs numba's compiler; unset NUMBA_DISABLE_JIT.")
    plain = plain_copy(model)
    x = _input(plain, example)
    module = trace(plain)
    with torch.no_grad():
        expected = plain(x)
        fast = Compiled(module, x)
        found = fast(x)
    _check(found, expected)
    return fast


def _input(model: nn.Module, example: Any) -> Tensor:
    tensors = list(tensors_of(example))
    if not tensors:
        raise InputError(f"compile needs an example batch. Got {type(example).__name__}.")
    kinds = {str(p.dtype) for p in model.parameters() if p.is_floating_point()}
    if kinds - {"torch.float32"}:
        raise InputError(f"compile takes float32 networks. Got {', '.join(sorted(kinds))}.")
    x = tensors[0].detach().cpu()
    if x.dtype != torch.float32 or x.ndim not in (2, 4) or not x.shape[0]:
        raise InputError(
            "compile takes networks of images, float32 and (n, channels, height, width), or of "
            f"vectors, (n, features). Got {x.dtype} of shape {tuple(x.shape)}."
        )
    return x


def _check(found: Any, expected: Any) -> None:
    for ours, theirs in zip(tensors_of(found), tensors_of(expected), strict=True):
        scale = max(float(theirs.abs().max()), 1e-12) if theirs.numel() else 1.0
        gap = float((ours - theirs).abs().max()) / scale if theirs.numel() else 0.0
        if not gap <= _TOLERANCE:
            raise ModelError(
                f"The compiled network differs from the original by {gap:.1e} of the largest "
                "output, more than 1e-4. Please report this network."
            )

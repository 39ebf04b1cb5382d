"""The watcher of one forward pass: tags on tensors, hooks on modules, notes on the way."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.overrides import TorchFunctionMode

from snacs.errors import InputError
from snacs.network.batches import tensors_of
from snacs.network.rules import Call, is_in_place, plain_name, tags_of_result
from snacs.network.seen import NORMS, Seen, channel_dim, is_addition, kind_of, weight_shape
from snacs.network.sources import (
    NOTHING,
    UNKNOWN,
    Origins,
    Tag,
    blend,
    filters,
    layers_in,
    uniform,
)
from snacs.values import Sum

Value = tuple[str, str | None] | int
"""A layer's own output (and the norm it went through), or the number of an addition."""

_LEAVES_TORCH = frozenset({"numpy", "tolist", "item", "array", "float", "int", "dlpack"})


class Watcher(TorchFunctionMode):
    """The tags of all tensors of one pass, and what was learnt on the way."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self._names = {module: name for name, module in model.named_modules()}
        # Tensors are held, so that no identity is used twice within the pass.
        self._tags: dict[int, tuple[Tensor, Tag | None]] = {}
        self._own: dict[int, tuple[Tensor, str, str | None]] = {}
        self._trained: dict[int, Tensor] = {}
        self._weights: dict[int, str] = {}
        self.seen: dict[str, Seen] = {}
        self.norms: dict[str, tuple[nn.Module, list[list[Origins]]]] = {}
        self.sums: list[Sum] = []
        self._additions = 0
        # Values that a layer may be judged by, and the functions that read them.
        self._values: dict[int, tuple[Tensor, Value]] = {}
        self.readers: dict[Value, list[str]] = {}
        self._active: list[str] = []
        self.called: set[str] = set()
        self.borrowed: set[str] = set()
        self._escaped: Origins = NOTHING
        self._handles: list[Any] = []
        self._busy = False  # our own reading of tensors inside hooks is not the network's

    def attach(self) -> None:
        for module, name in self._names.items():
            held = [*module.parameters(recurse=False), *module.buffers(recurse=False)]
            held += [value for value in vars(module).values() if isinstance(value, Tensor)]
            self._trained.update((id(tensor), tensor) for tensor in held)
            if isinstance(module, torch.jit.ScriptModule):
                continue  # takes no hooks; what it returns comes from nowhere that can be seen
            lazy = bool(getattr(module, "has_uninitialized_params", bool)())
            hook = self._refuse_lazy if lazy else self._quietly(self._before)
            self._handles.append(
                module.register_forward_pre_hook(hook, prepend=lazy, with_kwargs=True)
            )
            self._handles.append(
                module.register_forward_hook(self._quietly(self._after), with_kwargs=True)
            )
            if kind_of(module):
                originals = getattr(getattr(module, "parametrizations", None), "weight", None)
                weights = originals.parameters() if originals is not None else [module.weight]
                self._weights.update((id(w), name) for w in weights if isinstance(w, Tensor))

    def _quietly(self, hook: Callable[..., None]) -> Callable[..., None]:
        def quiet(*args: Any) -> None:
            self._busy = True
            try:
                hook(*args)
            finally:
                self._busy = False

        return quiet

    def detach(self) -> None:
        for handle in self._handles:
            handle.remove()

    def tag(self, tensor: Tensor, tag: Tag | None) -> None:
        self._tags[id(tensor)] = (tensor, tag)

    def tag_of(self, tensor: Tensor) -> Tag | None:
        """The sources of a tensor, None for a constant."""
        if id(tensor) in self._tags:
            return self._tags[id(tensor)][1]
        if id(tensor) in self._trained:
            return None
        # Made where no torch function was seen (numpy, a foreign library): it may hold anything.
        unknown = frozenset({UNKNOWN, *((name, -1) for name in self.seen)})
        return uniform(unknown, tensor.ndim)

    def constant(self, tensor: Tensor) -> Origins:
        zero = not self.trained(tensor) and not bool(tensor.any())
        return NOTHING if zero else frozenset({UNKNOWN})

    def trained(self, tensor: Tensor) -> bool:
        return id(tensor) in self._trained

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if self._busy:
            return func(*args, **kwargs)
        call = Call(plain_name(func), func, args, kwargs, self.tag_of, self.constant, self.trained)
        read = [self._values[id(t)][1] for t in call.operands if id(t) in self._values]
        result = self._follow(call, func, args, kwargs)
        outputs = list(tensors_of(result))
        if outputs or call.name in _LEAVES_TORCH:
            for value in read:
                self.readers.setdefault(value, []).append(call.name)
        if is_addition(func) and len(outputs) == 1:
            self._values[id(outputs[0])] = (outputs[0], self._additions - 1)
        return result

    def _follow(
        self, call: Call, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Call the function and tag what it returns."""
        operands = call.operands
        followed = any(self.tag_of(tensor) is not None for tensor in operands)
        if is_addition(func):
            self._note_addition(args, kwargs)
        if call.name == "setitem" and (followed or self._escaped):
            # The labels must be read before the values are overwritten.
            tags = tags_of_result(call, args[0])
            func(*args, **kwargs)
            return self._write(args[0], tags[0], alone=False)
        result = func(*args, **kwargs)
        outputs = list(tensors_of(result))
        if outputs:
            self._note_borrowing(operands)
        elif followed and call.name in _LEAVES_TORCH:
            self._escaped |= NOTHING.union(
                *(t.everything() for t in map(self.tag_of, operands) if t)
            )
        fresh = call.name.endswith("_like") or call.name.startswith("new_")
        if not followed or fresh:
            for output in outputs:
                escaped = uniform(blend(self._escaped), output.ndim) if self._escaped else None
                self.tag(output, escaped)
            return result
        tags = tags_of_result(call, result)
        if is_in_place(func, kwargs):
            for output, tag in zip(outputs, tags, strict=True):
                self._write(output, tag, alone=len(operands) == 1)
            return result
        for output, tag in zip(outputs, tags, strict=True):
            self.tag(output, tag)
        return result

    def _write(self, tensor: Tensor, tag: Tag, *, alone: bool) -> None:
        """Tag a tensor written in place, and what shares its memory."""
        self.tag(tensor, tag)
        memory = _memory(tensor)
        for key, (other, _, _) in list(self._own.items()):
            if _memory(other) == memory:
                del self._own[key]
        for key, (kept, _) in list(self._values.items()):
            if _memory(kept) == memory:
                del self._values[key]
        if alone and UNKNOWN not in tag.everything():
            return
        more = blend(tag.everything())
        for other, old in list(self._tags.values()):
            if other is not tensor and _memory(other) == memory:
                self.tag(other, (old or uniform(NOTHING, other.ndim)).with_origins(more))

    def _note_addition(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        call, self._additions = self._additions, self._additions + 1
        sides = [*args, *(kwargs[key] for key in ("input", "other") if key in kwargs)][:2]
        plain = len(args) <= 2 and kwargs.get("alpha", 1) == 1 and kwargs.get("out") is None
        tensors = [side for side in sides if isinstance(side, Tensor)]
        if not plain or len(tensors) != 2 or tensors[0].shape != tensors[1].shape:
            return
        for operand, side in enumerate(tensors):
            if id(side) not in self._own:
                continue
            _, layer, norm = self._own[id(side)]
            # A stream that was made from the layer has no errors of its own to make up for.
            if layer not in self._ancestors(tensors[1 - operand]):
                self.sums.append(Sum(call, layer, operand, norm))

    def _ancestors(self, tensor: Tensor) -> set[str]:
        """All layers that a tensor depends on, directly or through others."""
        tag = self.tag_of(tensor)
        new = layers_in(tag.origins) if tag else set()
        found: set[str] = set()
        while new:
            found |= new
            reached = [layers_in(columns) for name in new for columns in self.seen[name].columns]
            new = set().union(*reached) - found
        return found

    def _note_borrowing(self, operands: Iterable[Tensor]) -> None:
        for tensor in operands:
            owner = self._weights.get(id(tensor))
            if owner is not None and owner not in self._active:
                self.borrowed.add(owner)

    def _refuse_lazy(self, module: nn.Module, args: Any, kwargs: Any) -> None:  # noqa: ARG002
        raise InputError(
            f"Layer {self._names[module]!r} ({type(module).__name__}) has no weights yet. Run one "
            "batch through the network and load or train its weights before pruning it."
        )

    def _before(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        name = self._names[module]
        self.called.add(name)
        kind = kind_of(module)
        data = next(tensors_of([args, kwargs]), None)
        if data is None:
            return
        if kind:
            self._active.append(name)
            c_out = int(weight_shape(module)[0])
            seen = self.seen.setdefault(name, Seen(name, module, kind, c_out))
            columns = self.columns(data, channel_dim(kind, data.ndim))
            seen.columns.append(columns)
            for source in layers_in(columns):
                if name not in self.seen[source].consumers:
                    self.seen[source].consumers.append(name)
        elif isinstance(module, NORMS):
            shape = getattr(module, "normalized_shape", None)
            dim = 1 if shape is None else data.ndim - len(shape)
            calls = self.norms.setdefault(name, (module, []))[1]
            calls.append(self.columns(data, dim))

    def columns(self, tensor: Tensor, dim: int) -> list[Origins]:
        tag = self.tag_of(tensor) or uniform(self.constant(tensor), tensor.ndim)
        return tag.columns(dim, int(tensor.shape[dim]))

    def _after(self, module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        name, kind = self._names[module], kind_of(module)
        data = next(tensors_of([args, kwargs]), None)
        if name in self._active:
            self._active.remove(name)
        if data is None or not isinstance(output, Tensor):
            return
        if kind:
            seen = self.seen[name]
            seen.outputs += output.numel() // seen.c_out
            dim = channel_dim(kind, output.ndim)
            self.tag(output, filters(name, seen.c_out, dim=dim, ndim=output.ndim))
            self._own[id(output)] = (output, name, None)
            self._values[id(output)] = (output, (name, None))
        elif isinstance(module, _BatchNorm) and module.affine and self.tag_of(data) is not None:
            # Silencing a dead filter masks scale and shift, so that zeros stay zeros.
            self.tag(output, self.tag_of(data))
            if id(data) in self._own and self._own[id(data)][2] is None:
                layer = self._own[id(data)][1]
                self._own[id(output)] = (output, layer, name)
                self._values[id(output)] = (output, (layer, name))

    def rectified(self, value: Value, outputs: Iterable[Tensor]) -> bool:
        """Whether one ReLU reads a value and nothing else does, the network's caller included."""
        shown = [self._values[id(tensor)][1] for tensor in outputs if id(tensor) in self._values]
        return self.readers.get(value) == ["relu"] and value not in shown


def _memory(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr() if tensor.layout == torch.strided else id(tensor)

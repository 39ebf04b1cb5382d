"""Correcting channel counts that a forward has written into it.

``F.pad(x, (0, 0, 0, 0, 8, 8))``, ``x.view(-1, 512)`` or ``x[:, :32]`` do not fit a smaller network.
The module in whose forward such a call stands is traced by ``torch.fx`` (its children stay as they
are), the numbers are corrected, and a ``GraphModule`` with the same children and the same
``state_dict`` keys takes its place. Nothing else of the network is touched. Counts that a forward
computes from shapes need no help.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import fx, nn

from snacs.network.batches import Forward
from snacs.network.compaction.deciding import Streams
from snacs.network.compaction.wiring import PADS, Carried, Counted, watch
from snacs.values import BoolArray

Arguments = tuple[Any, ...]
Edits = dict[str, dict[str, tuple[Any, Arguments, dict[str, Any]]]]
"""By module and node: the new target, arguments and keyword arguments."""


class CannotRewrite(Exception):
    """A hard-coded count that cannot be corrected; the message says where and why."""


@dataclass
class _Cursor:
    """The node that is being run, while a module is run as a graph."""

    node: str | None = None


class _LeafTracer(fx.Tracer):
    """Traces one module's own forward; everything it calls stays a module."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:  # noqa: ARG002
        return True


def find_edits(
    model: nn.Module,
    batch: Any,
    calls: Iterable[Counted],
    streams: Streams,
    gone: BoolArray,
    forward: Forward | None,
) -> Edits:
    """The corrections that a network with the streams ``gone`` needs."""
    touched = {
        call.module
        for call in calls
        if any(gone[n] for seen in (call.data, *call.outputs) for n in _streams_of(streams, seen))
    }
    if not touched:
        return {}
    graphs = {name: _graph(model, name) for name in sorted(touched)}
    cursor = _Cursor()
    with _as_graphs(model, graphs, cursor):
        again = watch(model, batch, forward=forward, node=lambda: cursor.node)
    edits: Edits = {}
    olds: Edits = {}
    for call in again.calls:
        if call.node is None or call.module not in graphs:
            continue
        node = next(node for node in graphs[call.module].nodes if node.name == call.node)
        old = (node.target, tuple(node.args), dict(node.kwargs))
        new = _corrected(call, node, lambda seen, dim: _kept(streams, gone, seen, dim))
        if edits.setdefault(call.module, {}).setdefault(node.name, new) != new:
            raise CannotRewrite(
                f"{call.name} in {call.module!r} is called several times for different channels"
            )
        olds.setdefault(call.module, {})[node.name] = old
    changed = {
        name: {at: new for at, new in found.items() if new != olds[name][at]}
        for name, found in edits.items()
    }
    return {name: found for name, found in changed.items() if found}


def rewrite_(model: nn.Module, edits: Edits) -> nn.Module:
    """Put corrected graphs in place of modules; the network returned may be one itself."""
    # Inner modules first, so that the graph of an outer one takes up the new inner one.
    for name in sorted(edits, key=lambda n: -len(n.split(".")) if n else 1):
        graph = _graph(model, name)
        nodes = {node.name: node for node in graph.nodes}

        def own(values: Any, nodes: dict[str, fx.Node] = nodes) -> Any:
            return fx.node.map_arg(values, lambda other: nodes[other.name])

        for at, (target, args, kwargs) in edits[name].items():
            nodes[at].target, nodes[at].args, nodes[at].kwargs = target, own(args), own(kwargs)
        module = model.get_submodule(name)
        fresh = fx.GraphModule(module, graph, class_name=type(module).__name__)
        fresh.training = module.training
        if not name:
            return fresh
        parent, _, child = name.rpartition(".")
        setattr(model.get_submodule(parent), child, fresh)
    return model


def _graph(model: nn.Module, name: str) -> fx.Graph:
    module = model.get_submodule(name)
    if module._forward_hooks or module._forward_pre_hooks:
        raise CannotRewrite(f"{name!r} has channel counts in its forward, and hooks on it")
    try:
        return _LeafTracer().trace(module)
    except Exception as error:
        raise CannotRewrite(
            f"the forward of {name!r} has channel counts in it and cannot be traced "
            f"({type(error).__name__}: {error})"
        ) from error


@contextmanager
def _as_graphs(model: nn.Module, graphs: dict[str, fx.Graph], cursor: _Cursor) -> Iterator[None]:
    """Let modules run node by node, with ``cursor`` saying where."""
    modules = {name: model.get_submodule(name) for name in graphs}
    own = {name: vars(module).get("forward") for name, module in modules.items()}
    try:
        for name, module in modules.items():
            vars(module)["forward"] = _Steps(module, graphs[name], cursor).call
        yield
    finally:
        for name, module in modules.items():
            vars(module).pop("forward", None)
            if own[name] is not None:
                vars(module)["forward"] = own[name]


class _Steps(fx.Interpreter):
    def __init__(self, module: nn.Module, graph: fx.Graph, cursor: _Cursor) -> None:
        super().__init__(module, graph=graph)
        self._signature = inspect.signature(module.forward)
        self._cursor = cursor

    def call(self, *args: Any, **kwargs: Any) -> Any:
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return self.run(*bound.arguments.values())

    def run_node(self, n: fx.Node) -> Any:
        outer, self._cursor.node = self._cursor.node, n.name
        try:
            return super().run_node(n)
        finally:
            self._cursor.node = outer


def _streams_of(streams: Streams, seen: Carried) -> set[int]:
    return streams.of(seen.tag.everything())


def _kept(streams: Streams, gone: BoolArray, seen: Carried, dim: int) -> BoolArray:
    """Which indices along ``dim`` stay."""
    kept = np.ones(seen.shape[dim], dtype=bool)
    if seen.tag.labels.shape[dim] == 1:
        return kept
    for index, origins in enumerate(seen.columns(dim)):
        states = {bool(gone[number]) for number in streams.of(origins)}
        if len(states) > 1:
            raise CannotRewrite("a call rearranges channels so that only some of a row would go")
        kept[index] = states != {True}
    return kept


_Kept = Callable[[Carried, int], BoolArray]


def _corrected(call: Counted, node: fx.Node, kept: _Kept) -> tuple[Any, Arguments, dict[str, Any]]:
    """Target and arguments of one node with corrected numbers; what is no number stays."""
    target, kwargs = node.target, dict(node.kwargs)
    args: Arguments = tuple(node.args)
    if call.name in PADS:
        changed = _pads(kwargs["pad"] if "pad" in kwargs else args[1], call.outputs[0], kept)
        if "pad" in kwargs:
            return target, args, {**kwargs, "pad": changed}
        return target, (args[0], changed, *args[2:]), kwargs
    if call.name in ("view", "reshape", "expand"):
        flat = len(args) > 1 and not isinstance(args[1], tuple | list)
        if len(args) < 2:
            return target, args, kwargs
        changed = _sizes(args[1:] if flat else args[1], call.outputs[0], kept)
        return target, (args[0], *changed) if flat else (args[0], changed), kwargs
    if call.name in ("split", "split_with_sizes", "chunk"):
        return _split(call, node, kept)
    if call.name == "narrow" and len(args) == 4 and all(isinstance(a, int) for a in args[1:]):
        dim = args[1] % len(call.data.shape)
        count = np.cumsum([0, *kept(call.data, dim)])
        start, end = int(count[args[2]]), int(count[args[2] + args[3]])
        return target, (args[0], args[1], start, end - start), kwargs
    if call.name == "unflatten" and len(args) == 3 and isinstance(args[1], int):
        dim = args[1] % len(call.data.shape)
        changed = _sizes(args[2], call.outputs[0], kept, first=dim)
        return target, (args[0], args[1], changed), kwargs
    if call.name == "getitem":
        return target, (args[0], _positions(args[1], call.data, kept)), kwargs
    return target, args, kwargs


def _pads(given: Any, output: Carried, kept: _Kept) -> Any:
    pads = list(given)
    for place in range(0, len(pads), 2):
        dim = len(output.shape) - 1 - place // 2
        before, after = pads[place], pads[place + 1]
        if isinstance(before, int) and isinstance(after, int) and (before or after):
            flags = kept(output, dim)
            size = len(flags)
            pads[place] = int(flags[:before].sum())
            pads[place + 1] = int(flags[size - after :].sum())
    return _like(given, pads)


def _sizes(given: Any, output: Carried, kept: _Kept, *, first: int = 0) -> Any:
    """Sizes of an output's dimensions from ``first``; −1 and what is computed stay as they are."""
    sizes = [
        int(kept(output, dim).sum()) if isinstance(size, int) and size >= 0 else size
        for dim, size in enumerate(given, first)
    ]
    return _like(given, sizes)


def _like(given: Any, values: list[Any]) -> Any:
    """A list where a list was given: a changed type would look like a changed value."""
    return values if isinstance(given, list) else tuple(values)


def _split(call: Counted, node: fx.Node, kept: _Kept) -> tuple[Any, Arguments, dict[str, Any]]:
    args: Arguments = tuple(node.args)
    kwargs: dict[str, Any] = dict(node.kwargs)
    dim = kwargs.get("dim", args[2] if len(args) > 2 else 0)
    if not isinstance(dim, int):
        return node.target, args, kwargs
    place = dim % len(call.data.shape)
    sizes = [int(kept(output, place).sum()) for output in call.outputs]
    if sizes == [output.shape[place] for output in call.outputs]:
        return node.target, args, kwargs
    target = "split" if node.op == "call_method" else torch.split
    return target, (args[0], sizes, dim), {}


def _positions(index: Any, data: Carried, kept: _Kept) -> Any:
    """A slice, or a tuple of slices and numbers, in terms of the channels that are left."""
    parts = list(index) if isinstance(index, tuple) else [index]
    if any(part is None or isinstance(part, bool) for part in parts):
        return index
    rest = len(data.shape) - sum(part is not Ellipsis for part in parts)
    changed, dim = [], 0
    for part in parts:
        if part is Ellipsis:
            changed.append(part)
            dim += rest
            continue
        changed.append(_position(part, data, dim, kept))
        dim += 1
    return tuple(changed) if isinstance(index, tuple) else changed[0]


def _position(part: Any, data: Carried, dim: int, kept: _Kept) -> Any:
    if not isinstance(part, slice | int) or data.tag.labels.shape[dim] == 1:
        return part
    flags = kept(data, dim)
    if flags.all():
        return part
    count = np.cumsum([0, *flags])
    if isinstance(part, int):
        if not flags[part]:
            raise CannotRewrite(f"a channel is taken by its number ({part}) and would be removed")
        return int(count[part % len(flags)])
    if any(isinstance(edge, fx.Node) for edge in (part.start, part.stop, part.step)):
        return part
    start, stop, step = part.indices(len(flags))
    if step != 1:
        raise CannotRewrite(f"every {step}th channel is taken")
    new_start = None if part.start is None else int(count[start])
    return slice(new_start, None if part.stop is None else int(count[max(start, stop)]), None)

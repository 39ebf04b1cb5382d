"""From data to a network: an ``nn.Module`` that runs a stored graph, call by call.

Nothing is compiled, evaluated or imported: a target is looked up in the vocabulary once, when the
file is read, and called from then on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, fx, nn

from snacs.artifact.codec import Ref, decode, fill, refs_in
from snacs.artifact.vocabulary import ATTRIBUTES, FUNCTIONS, METHODS, MODULES
from snacs.errors import InputError

_MOST_NODES = 1_000_000


@dataclass(frozen=True, eq=False)
class _Step:
    """One call: ``done`` are the results that nobody needs after it."""

    call: Callable[..., Any] | None
    module: str | None
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    done: tuple[int, ...]


class Restored(nn.Module):
    """A network read from a file. Modules, parameters and keys are named as in the original.

    ``document`` is the graph as data: saving the network again writes it down unchanged.
    """

    def __init__(
        self, document: Mapping[str, Any], modules: Mapping[str, Any], tensors: Mapping[str, Tensor]
    ) -> None:
        super().__init__()
        self.document = dict(document)
        nodes = _nodes(document)
        for name in _texts(document, "modules"):
            if name not in modules:
                raise InputError(f"its module {name[:60]!r} is not described")
            self._place(name, build_module(modules[name]))
        for node in nodes:
            if node["op"] == "get_attr":
                self._place_tensor(_text(node, "target"), tensors)
        self._inputs, self._steps, self._result = _steps(nodes, self)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        results: list[Any] = self._bind(args, kwargs)
        results += [None] * len(self._steps)
        first = len(self._inputs)
        for index, step in enumerate(self._steps, first):
            values = fill(step.args, results.__getitem__)
            named = fill(step.kwargs, results.__getitem__) if step.kwargs else {}
            if step.module is not None:
                results[index] = self.get_submodule(step.module)(*values, **named)
            elif step.call is not None:
                results[index] = step.call(*values, **named)
            for old in step.done:
                results[old] = None
        return fill(self._result, results.__getitem__)

    def tensor(self, name: str) -> Any:
        """The parameter or buffer of this name, as it is now."""
        parent, _, child = name.rpartition(".")
        return getattr(self.get_submodule(parent), child)

    def _bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        names = [name for name, _ in self._inputs]
        if len(args) > len(names) or not kwargs.keys() <= set(names[len(args) :]):
            raise InputError(
                f"This network takes {len(names)} input(s): {', '.join(names)}. "
                f"Got {len(args)} and the names {', '.join(kwargs) or 'none'}."
            )
        bound = list(args)
        for name, default in self._inputs[len(args) :]:
            if name not in kwargs and default is None:
                raise InputError(f"This network needs the input {name!r}.")
            bound.append(kwargs[name] if name in kwargs else default[0] if default else None)
        return bound

    def _place(self, name: str, module: nn.Module) -> None:
        parent, child = self._parent(name)
        parent.add_module(child, module)

    def _place_tensor(self, name: str, tensors: Mapping[str, Tensor]) -> None:
        if name not in tensors:
            raise InputError(f"its tensor {name[:60]!r} is missing")
        parent, child = self._parent(name)
        if child not in parent._buffers and child not in parent._parameters:
            parent.register_buffer(child, tensors[name])

    def _parent(self, name: str) -> tuple[nn.Module, str]:
        *path, child = name.split(".")
        parent: nn.Module = self
        for part in path:
            if part not in parent._modules:
                parent.add_module(part, nn.Module())
            parent = parent.get_submodule(part)
        return parent, child


class RestoredOne(Restored):
    """A restored network with one input; its plain signature lets ``torch.fx`` trace it again."""

    def forward(self, x: Any) -> Any:
        return super().forward(x)


def restore(document: Any, modules: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Restored:
    """The network that a graph, module descriptions and tensors describe."""
    if not isinstance(document, dict):
        raise InputError("its graph is no graph")
    placeholders = [node for node in _nodes(document) if node.get("op") == "placeholder"]
    plain = len(placeholders) == 1 and "default" not in placeholders[0]
    return (RestoredOne if plain else Restored)(document, modules, tensors)


def build_module(description: Any) -> nn.Module:
    """A module without numbers in it (on the meta device), from its kind and arguments."""
    if not isinstance(description, dict) or description.get("kind") not in MODULES:
        kind = description.get("kind") if isinstance(description, dict) else description
        raise InputError(f"it names a module {str(kind)[:60]!r} that snacs does not build")
    kind, fields = MODULES[description["kind"]]
    given = description.get("arguments")
    if not isinstance(given, dict) or set(given) != set(fields):
        raise InputError(f"the arguments of a {kind.__name__} are not {', '.join(fields)}")
    arguments = {name: decode(value, {}) for name, value in given.items()}
    # The meta device holds shapes only: a file that asks for 10¹⁵ weights gets none.
    with torch.device("meta"):
        return kind(**arguments)


def _nodes(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    nodes = document.get("nodes")
    if not isinstance(nodes, list) or not 0 < len(nodes) < _MOST_NODES:
        raise InputError("its graph has no list of nodes")
    if not all(isinstance(node, dict) for node in nodes):
        raise InputError("its graph has a node that is none")
    return nodes


def _steps(
    nodes: list[dict[str, Any]], network: Restored
) -> tuple[list[tuple[str, tuple[Any] | None]], list[_Step], Any]:
    order = [node for node in nodes if node.get("op") == "placeholder"]
    order += [node for node in nodes if node.get("op") not in ("placeholder", "output")]
    ends = [node for node in nodes if node.get("op") == "output"]
    if len(ends) != 1:
        raise InputError("its graph does not have exactly one output")
    places: dict[str, int] = {}
    inputs: list[tuple[str, tuple[Any] | None]] = []
    calls: list[tuple[Any, Any, tuple[Any, ...], dict[str, Any]]] = []
    for index, node in enumerate(order):
        if node["op"] == "placeholder":
            default = (decode(node["default"], {}),) if "default" in node else None
            inputs.append((_text(node, "target"), default))
        else:
            calls.append(_call(node, places, network))
        # Only now, so that no node can need itself or a later one.
        places[_text(node, "name")] = index
    if len(places) != len(order):
        raise InputError("its graph has two nodes of the same name")
    result = decode(ends[0].get("value"), places)
    last: dict[int, int] = {}
    for number, (_, _, args, kwargs) in enumerate(calls):
        last.update(dict.fromkeys(refs_in([list(args), kwargs]), number))
    for index in refs_in(result):
        last.pop(index, None)
    done: dict[int, list[int]] = {}
    for index, number in last.items():
        done.setdefault(number, []).append(index)
    steps = [_Step(*call, tuple(done.get(number, ()))) for number, call in enumerate(calls)]
    return inputs, steps, result


def _call(
    node: Mapping[str, Any], places: Mapping[str, int], network: Restored
) -> tuple[Callable[..., Any] | None, str | None, tuple[Any, ...], dict[str, Any]]:
    operation, target = node["op"], _text(node, "target")
    if operation == "get_attr":
        return network.tensor, None, (target,), {}
    args, kwargs = node.get("args"), node.get("kwargs")
    if not isinstance(args, list) or not isinstance(kwargs, dict):
        raise InputError("its graph has a call without arguments")
    decoded = tuple(decode(argument, places) for argument in args)
    named = {key: decode(value, places) for key, value in kwargs.items()}
    if operation == "call_module":
        if target not in network.document["modules"]:
            raise InputError(f"its graph calls a module {target[:60]!r} that is not there")
        return None, target, decoded, named
    if operation == "call_method" and target in METHODS:
        _need_tensor(decoded, target)
        return partial(_call_method, target), None, decoded, named
    if operation == "call_function" and target == "getattr":
        _need_tensor(decoded, target)
        if len(decoded) != 2 or decoded[1] not in ATTRIBUTES or named:
            raise InputError("its graph reads an attribute that snacs does not read")
        return _read, None, decoded, {}
    if operation == "call_function" and target in FUNCTIONS:
        return FUNCTIONS[target], None, decoded, named
    raise InputError(f"its graph calls {target[:60]!r}, which snacs does not call")


def _need_tensor(arguments: tuple[Any, ...], target: str) -> None:
    if not arguments or not isinstance(arguments[0], Ref):
        raise InputError(f"its graph calls {target!r} on something that is no tensor")


def _call_method(name: str, tensor: Any, /, *args: Any, **kwargs: Any) -> Any:
    return getattr(_tensor(tensor), name)(*args, **kwargs)


def _read(tensor: Any, name: str) -> Any:
    return getattr(_tensor(tensor), name)


def _tensor(value: Any) -> Any:
    if not isinstance(value, Tensor | fx.Proxy):
        raise InputError(f"A stored graph calls a tensor method on a {type(value).__name__}.")
    return value


def _text(node: Mapping[str, Any], key: str) -> str:
    value = node.get(key)
    if not isinstance(value, str) or not value:
        raise InputError(f"its graph has a node without a {key}")
    return value


def _texts(document: Mapping[str, Any], key: str) -> list[str]:
    value = document.get(key)
    if not isinstance(value, list) or not all(isinstance(item, str) and item for item in value):
        raise InputError(f"its graph has no list of {key}")
    return value

"""From a network to data: its forward as a list of calls, its modules as names and numbers."""

from __future__ import annotations

import builtins
from typing import Any

import torch
from torch import Tensor, fx, nn

from snacs.artifact.codec import NotStorable, encode
from snacs.artifact.vocabulary import ATTRIBUTES, FUNCTIONS, METHODS, MODULES

_NAMES = {id(function): name for name, function in reversed(FUNCTIONS.items())}


class _Tracer(fx.Tracer):
    """Stops at modules that the vocabulary knows, goes into all others."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:  # noqa: ARG002
        return word_of(m) is not None


def word_of(module: nn.Module) -> str | None:
    """The vocabulary's name for exactly this class, or None."""
    name = type(module).__name__
    return name if name in MODULES and type(module) is MODULES[name][0] else None


def describe_modules(model: nn.Module) -> dict[str, dict[str, Any]]:
    """Kind and arguments of every module that the vocabulary knows, by name."""
    return {
        name: describe_module(module)
        for name, module in model.named_modules(remove_duplicate=False)
        if word_of(module) is not None
    }


def describe_module(module: nn.Module) -> dict[str, Any]:
    word = word_of(module)
    if word is None:
        raise NotStorable(f"a module of class {type(module).__name__}")
    arguments = {}
    for name in MODULES[word][1]:
        value: Any = getattr(module, name)
        if name == "bias":
            value = value is not None
        arguments[name] = encode(tuple(value) if isinstance(value, torch.Size) else value)
    return {"kind": word, "arguments": arguments}


def describe_graph(model: nn.Module) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The forward of a network in eval mode, and tensors that only its forward knows.

    Raises
    ------
    NotStorable
        Where the forward cannot be traced, or does something that the vocabulary has no word for.
    """
    for name, module in model.named_modules():
        if module._forward_hooks or module._forward_pre_hooks:
            raise NotStorable(f"hooks on {name or 'the network'!r}")
    tracer = _Tracer()
    try:
        graph = tracer.trace(model)
    except Exception as error:  # anything that a user's forward may raise when run on proxies
        raise NotStorable(
            f"a forward that torch.fx cannot trace ({type(error).__name__}: {str(error)[:200]})"
        ) from error
    nodes, constants = [], {}
    known = set(model.state_dict(keep_vars=True))
    for node in graph.nodes:
        nodes.append(_node(node, tracer.root))
        if node.op == "get_attr" and node.target not in known:
            constants[str(node.target)] = _attribute(tracer.root, str(node.target))
    used = {str(node.target) for node in graph.nodes if node.op == "call_module"}
    return {"nodes": nodes, "modules": sorted(used)}, constants


def _node(node: fx.Node, root: nn.Module) -> dict[str, Any]:
    found: dict[str, Any] = {"name": node.name, "op": node.op}
    if node.op == "placeholder":
        name = str(node.target)
        if name.startswith("*"):
            raise NotStorable(f"an argument {name} of the forward")
        found["target"] = name
        if node.args:
            found["default"] = encode(node.args[0])
        return found
    if node.op == "output":
        return {**found, "value": encode(node.args[0])}
    if node.op == "get_attr":
        _attribute(root, str(node.target))
        return {**found, "target": str(node.target)}
    found["target"] = _target(node, root)
    found["args"] = [encode(argument) for argument in node.args]
    found["kwargs"] = {key: encode(value) for key, value in node.kwargs.items()}
    return found


def _target(node: fx.Node, root: nn.Module) -> str:
    target = node.target
    if node.op == "call_module":
        describe_module(root.get_submodule(str(target)))  # says so if there is no word for it
        return str(target)
    if node.op == "call_method":
        if target not in METHODS:
            raise NotStorable(f"the tensor method {target}")
        return str(target)
    if target is builtins.getattr:
        if node.args[1] not in ATTRIBUTES:
            raise NotStorable(f"the tensor attribute {node.args[1]}")
        return "getattr"
    if id(target) not in _NAMES:
        raise NotStorable(f"the function {getattr(target, '__name__', target)}")
    return _NAMES[id(target)]


def _attribute(root: nn.Module, name: str) -> Tensor:
    value: Any = root
    for part in name.split("."):
        value = getattr(value, part)
    if not isinstance(value, Tensor):
        raise NotStorable(f"the attribute {name}, which is no tensor")
    return value.detach()

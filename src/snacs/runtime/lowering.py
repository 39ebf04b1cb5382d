"""From a traced network to steps: what our kernels can do, and what torch goes on doing."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx, nn

from snacs.errors import InputError, ModelError
from snacs.runtime.fusing import fuse
from snacs.runtime.readers import read_node
from snacs.runtime.reading import NotOurs, Reading
from snacs.runtime.steps import Lowered, Segment, Step, TorchStep, Value

Shapes = dict[fx.Node, tuple[int, ...]]


class _Shapes(fx.Interpreter):
    """Runs the graph once and notes the shape of every tensor."""

    def __init__(self, module: fx.GraphModule) -> None:
        super().__init__(module)
        self.shapes: Shapes = {}

    def run_node(self, n: fx.Node) -> Any:
        found = super().run_node(n)
        if isinstance(found, Tensor) and found.dtype == torch.float32:
            self.shapes[n] = tuple(found.shape)
        return found


def trace(model: nn.Module) -> fx.GraphModule:
    """The network as a graph of calls, in eval mode.

    Raises
    ------
    ModelError
        If torch.fx cannot follow its forward.
    """
    try:
        tracer = fx.Tracer()
        graph = tracer.trace(model)
    except Exception as error:  # anything that a user's forward may raise when run on proxies
        raise ModelError(
            "The network cannot be compiled: torch.fx cannot trace its forward "
            f"({type(error).__name__}: {str(error)[:200]}). Control flow that depends on values is "
            "the usual reason; compile the part without it, as a module of its own."
        ) from error
    module = fx.GraphModule(tracer.root, graph)
    _settle_in_place(module)
    return module


def lower(module: fx.GraphModule, x: Tensor, *, dense: frozenset[str] = frozenset()) -> Lowered:
    """Split a traced network into steps; convolutions named in ``dense`` are left to torch."""
    placeholders = [node for node in module.graph.nodes if node.op == "placeholder"]
    required = [node for node in placeholders if not node.args]
    if len(required) != 1:
        names = ", ".join(str(node.target) for node in required)
        raise InputError(
            f"compile takes networks with one input tensor; this forward takes ({names})."
        )
    shapes = _Shapes(module)
    with torch.no_grad():
        shapes.run(x, *(node.args[0] for node in placeholders[1:]))
    reading = Reading(module=module, shapes=shapes.shapes, images=x.shape[0], dense=dense)
    found: list[Step | TorchStep] = []
    for node in module.graph.nodes:
        if node.op == "output":
            continue
        if node in placeholders:
            reading.place(node)
            continue
        try:
            found.extend(read_node(reading, node))
        except NotOurs as reason:
            reading.place(node)
            found.append(TorchStep(node=node, reason=str(reason)))
    return _lowered(module, fuse(found, _needed_outside(module, found, reading)), reading)


def _settle_in_place(module: fx.GraphModule) -> None:
    """Let whoever reads a tensor after it was changed in place read the changed one."""
    order = {node: index for index, node in enumerate(module.graph.nodes)}
    for node in module.graph.nodes:
        if _changes(module, node) and node.args and isinstance(node.args[0], fx.Node):
            _read_later(node.args[0], node, order)
    module.recompile()


def _read_later(old: fx.Node, new: fx.Node, order: dict[fx.Node, int]) -> None:
    old.replace_all_uses_with(new, delete_user_cb=lambda user: order[user] > order[new])


def _changes(module: fx.GraphModule, node: fx.Node) -> bool:
    if node.op == "call_module":
        return bool(getattr(module.get_submodule(str(node.target)), "inplace", False))
    if node.op == "call_method":
        name = str(node.target)
        return name.endswith("_") and not name.endswith("__")
    if node.op == "call_function":
        name = getattr(node.target, "__name__", "")
        return bool(node.kwargs.get("inplace")) or name in ("iadd", "imul", "isub", "relu_")
    return False


def _needed_outside(
    module: fx.GraphModule, found: list[Step | TorchStep], reading: Reading
) -> set[str]:
    """Names of values that torch reads, or that are the network's output."""
    readers = [item.node for item in found if isinstance(item, TorchStep)]
    readers += [node for node in module.graph.nodes if node.op == "output"]
    inputs = {node for reader in readers for node in reader.all_input_nodes}
    return {reading.views[node][0].name for node in inputs if node in reading.views}


def _lowered(module: fx.GraphModule, found: list[Step | TorchStep], reading: Reading) -> Lowered:
    """Leave out what nobody needs, then gather consecutive steps of ours into segments."""
    output = next(node for node in module.graph.nodes if node.op == "output")
    needed_nodes: set[fx.Node] = set(output.all_input_nodes)
    needed: set[str] = {reading.views[n][0].name for n in needed_nodes if n in reading.views}
    kept: list[Step | TorchStep] = []
    for item in reversed(found):
        if isinstance(item, TorchStep):
            mine = item.node in needed_nodes
            if not mine and item.node in reading.views:
                mine = reading.views[item.node][0].name in needed
            if not mine:
                continue
            inputs = item.node.all_input_nodes
            needed_nodes.update(inputs)
            needed.update(reading.views[n][0].name for n in inputs if n in reading.views)
        elif item.out.name in needed:
            needed.update(value.name for value in item.reads)
        else:
            continue
        kept.append(item)
    kept.reverse()
    outside = _needed_outside(module, kept, reading)
    parts: list[Segment | TorchStep] = []
    pending: list[Step] = []
    for item in kept:
        if isinstance(item, Step):
            pending.append(item)
            continue
        if pending:
            parts.append(_segment(pending, outside, kept))
            pending = []
        parts.append(item)
    if pending:
        parts.append(_segment(pending, outside, kept))
    return Lowered(parts=tuple(parts), views=dict(reading.views))


def _segment(steps: list[Step], outside: set[str], everything: list[Step | TorchStep]) -> Segment:
    made = {step.out.name: step.out for step in steps}
    inputs: dict[str, Value] = {}
    for step in steps:
        inputs |= {value.name: value for value in step.reads if value.name not in made}
    elsewhere = {
        value.name
        for other in everything
        if isinstance(other, Step) and other not in steps
        for value in other.reads
    }
    outputs = [value for name, value in made.items() if name in outside or name in elsewhere]
    return Segment(steps=tuple(steps), inputs=tuple(inputs.values()), outputs=tuple(outputs))

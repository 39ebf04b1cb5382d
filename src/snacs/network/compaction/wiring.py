"""Who carries which channel, as compaction needs it: the trace, padding and hard-coded counts.

Two things are added to :mod:`snacs.network.trace`. Channels that a padded shortcut fills with zeros
become sources of their own, so that it is known which of them meet which filter in a sum. And
calls that may have channel counts written into them (pad, view, split, a slice) are noted with the
channels that they see, so that :mod:`snacs.network.compaction.rewriting` can correct the counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor, nn

from snacs.network.batches import Forward, evaluating, run, size_of, tensors_of
from snacs.network.rules import plain_name
from snacs.network.seen import Seen
from snacs.network.sources import INPUT, NOTHING, Origins, Tag, uniform
from snacs.network.trace import Trace
from snacs.network.watch import Watcher
from snacs.values import NETWORK_INPUT, BoolArray

PADS = frozenset({"pad", "constant_pad_nd"})
COUNTING = PADS | frozenset(
    {
        *("view", "reshape", "expand", "unflatten", "repeat"),
        *("split", "split_with_sizes", "chunk", "narrow", "getitem"),
    }
)
"""Functions with sizes or positions among their arguments."""
_PADDING = "<padding {}>"
_KIND = "Padding"


@dataclass(frozen=True, eq=False)
class Carried:
    """A tensor as a call saw it: where its channels come from, and its shape."""

    tag: Tag
    shape: tuple[int, ...]

    def columns(self, dim: int) -> list[Origins]:
        return self.tag.columns(dim, self.shape[dim])


@dataclass(frozen=True, eq=False)
class Counted:
    """One call of a function in :data:`COUNTING`, inside ``module``, at graph node ``node``."""

    module: str
    name: str
    data: Carried
    outputs: tuple[Carried, ...]
    node: str | None = None


@dataclass(frozen=True, eq=False)
class Wiring:
    """What one pass showed: per layer, norm and PReLU the origins of every channel, per call."""

    trace: Trace
    sources: dict[str, int]
    """Filters by layer, and channels by padding."""
    readers: dict[str, list[list[Origins]]]
    norms: dict[str, list[list[Origins]]]
    outputs: Origins
    calls: tuple[Counted, ...]

    def raw(self) -> dict[str, BoolArray]:
        """Per layer the channels that the network's own input reaches without another layer."""
        return {
            name: np.any(
                [[any(o[0] == NETWORK_INPUT for o in each) for each in call] for call in calls],
                axis=0,
            )
            for name, calls in self.readers.items()
        }


def watch(
    model: nn.Module,
    batch: Any,
    *,
    forward: Forward | None = None,
    node: Callable[[], str | None] = lambda: None,
) -> Wiring:
    """Run one batch, already on the model's device, in eval mode and note who feeds whom.

    ``node`` tells which node of a graph is being run, where a module is run as a graph.
    """
    watcher = _CountWatcher(model, node)
    try:
        watcher.attach()
        with evaluating(model):
            for tensor in tensors_of(batch):
                watcher.tag(tensor, uniform(frozenset({INPUT}), tensor.ndim))
            with watcher:
                result = run(model, batch, forward)
        return _wiring(watcher, result, size_of(batch))
    finally:
        watcher.detach()


class _CountWatcher(Watcher):
    def __init__(self, model: nn.Module, node: Callable[[], str | None]) -> None:
        super().__init__(model)
        self.calls: list[Counted] = []
        self.slopes: dict[str, list[list[Origins]]] = {}
        self._node = node
        self._inside: list[str] = []

    def attach(self) -> None:
        super().attach()
        for module in self._names:
            enter = self._quietly(self._enter)
            self._handles.append(module.register_forward_pre_hook(enter, with_kwargs=True))
            self._handles.append(module.register_forward_hook(self._leave, always_call=True))

    def _enter(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        name = self._names[module]
        self._inside.append(name)
        data = next(tensors_of([args, kwargs]), None)
        if isinstance(module, nn.PReLU) and module.num_parameters > 1 and data is not None:
            self.slopes.setdefault(name, []).append(self.columns(data, 1))

    def _leave(self, module: nn.Module, args: Any, output: Any) -> None:  # noqa: ARG002
        self._inside.pop()

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        name = plain_name(func)
        if self._busy or name not in COUNTING:
            return super().__torch_function__(func, types, args, kwargs)
        data = next(tensors_of([args, kwargs or {}]), None)
        tag = None if data is None else self.tag_of(data)
        result = super().__torch_function__(func, types, args, kwargs)
        # Calls of a forward= function stand in no module: nobody could correct them.
        if data is None or tag is None or not self._inside:
            return result
        if name in PADS and isinstance(result, Tensor):
            self._name_padding(tag, tuple(data.shape), result)
        outputs = tuple(
            Carried(self.tag_of(t) or uniform(NOTHING, t.ndim), tuple(t.shape))
            for t in tensors_of(result)
        )
        seen = Carried(tag, tuple(data.shape))
        self.calls.append(Counted(self._inside[-1], name, seen, outputs, self._node()))
        return result

    def _name_padding(self, before: Tag, shape: tuple[int, ...], result: Tensor) -> None:
        """Give the zeros beside channels a source; zeros around an image have none."""
        grown = [dim for dim, size in enumerate(shape) if result.shape[dim] != size]
        after = self.tag_of(result)
        if len(grown) != 1 or after is None:
            return
        (dim,) = grown
        inputs = before.columns(dim, shape[dim])
        exact = [[origin for origin in origins if origin[1] >= 0] for origins in inputs]
        # Along an image's height or width, every index carries the same filters.
        if not any(exact) or len({o for each in exact for o in each}) < sum(map(len, exact)):
            return
        size = int(result.shape[dim])
        name = _PADDING.format(sum(seen.kind == _KIND for seen in self.seen.values()))
        self.seen[name] = Seen(name, nn.Identity(), _KIND, size)
        labels = np.repeat(after.labels, 1 if after.labels.shape[dim] > 1 else size, axis=dim)
        origins = list(after.origins)
        for index, column in enumerate(after.columns(dim, size)):
            if column == NOTHING:
                np.moveaxis(labels, dim, 0)[index] = len(origins)
                origins.append(frozenset({(name, index)}))
        self.tag(result, Tag(labels, tuple(origins)))


def _wiring(watcher: _CountWatcher, result: Any, images: int) -> Wiring:
    layers = tuple(seen for seen in watcher.seen.values() if seen.kind != _KIND)
    outputs = list(tensors_of(result)) or list(tensors_of(getattr(result, "__dict__", None)))
    tags = [watcher.tag_of(tensor) for tensor in outputs]
    return Wiring(
        trace=Trace(
            layers=layers,
            norms=(),
            sums=(),
            rectified=(),
            outputs=(),
            heads=(),
            called=frozenset(watcher.called),
            borrowed=frozenset(watcher.borrowed),
            images=images,
        ),
        sources={seen.name: seen.c_out for seen in watcher.seen.values()},
        readers={layer.name: layer.columns for layer in layers},
        norms={**{name: calls for name, (_, calls) in watcher.norms.items()}, **watcher.slopes},
        outputs=NOTHING.union(*(tag.everything() for tag in tags if tag is not None)),
        calls=tuple(watcher.calls),
    )

"""Why a layer is kept as it is, and why a module is left alone."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Iterator, Sequence

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.nn.utils import parametrize

from snacs.errors import InputError, closest
from snacs.network.masking import Mask
from snacs.network.trace import KINDS, NORMS, Seen, Trace, kind_of
from snacs.values import NETWORK_INPUT, LeftAlone

Ignore = str | type[nn.Module] | re.Pattern[str]
"""An exact name, a pattern such as ``"layer1.*"``, a module type or a regular expression."""

LAST = "final classifier: makes the network's output"

_ATTENTION = (
    nn.MultiheadAttention,
    nn.Transformer,
    nn.TransformerEncoder,
    nn.TransformerDecoder,
    nn.TransformerEncoderLayer,
    nn.TransformerDecoderLayer,
)
_REASONS: tuple[tuple[tuple[type[nn.Module], ...], str], ...] = (
    ((nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d), "transposed convolution"),
    ((nn.RNNBase, nn.RNNCellBase), "recurrent: its weights act again at every step"),
    ((nn.MultiheadAttention,), "attention: its projections are used fused"),
    ((nn.Embedding, nn.EmbeddingBag), "embedding: a table, no connections"),
    ((nn.Bilinear,), "bilinear: a connection has two inputs"),
)


def own_parametrization(module: nn.Module) -> bool:
    """Whether every parametrization of the weight is a mask of snacs (or there is none)."""
    if not parametrize.is_parametrized(module, "weight"):
        return True
    return all(isinstance(each, Mask) for each in _on_weight(module))


def _on_weight(module: nn.Module) -> Iterator[nn.Module]:
    return iter(getattr(module, "parametrizations").weight)  # noqa: B009 - not known to nn.Module


def reasons_to_keep(
    modules: dict[str, nn.Module],
    seen: Trace,
    ignored: dict[str, str],
    *,
    keep_first: bool,
    keep_last: bool,
) -> dict[str, str | None]:
    owners = _owners(modules)
    last = _last(seen) if keep_last else set()
    reasons: dict[str, str | None] = {}
    for layer in seen.layers:
        reason = _unsound(layer, modules, seen, owners)
        sources = {segment.source for segment in layer.feeds}
        if reason is None:
            reason = ignored.get(layer.name)
        if reason is None and keep_first and sources == {NETWORK_INPUT}:
            reason = "first layer: reads the network's input"
        if reason is None and layer.name in last:
            reason = LAST
        reasons[layer.name] = reason
    return reasons


def reasons_not_to_cut(modules: dict[str, nn.Module], seen: Trace) -> dict[str, str]:
    """Why the weight of a layer cannot be replaced by a smaller one; layers that can are absent."""
    owners = _owners(modules)
    found = {layer.name: _not_plain(layer, modules, seen, owners) for layer in seen.layers}
    return {name: reason for name, reason in found.items() if reason is not None}


def _owners(modules: dict[str, nn.Module]) -> dict[int, list[str]]:
    """The names of the modules that hold each weight, by its identity."""
    owners: dict[int, list[str]] = {}
    for name, module in modules.items():
        if isinstance(module, parametrize.ParametrizationList):
            continue  # holds the weight of the module around it
        for parameter in _weights(module):
            owners.setdefault(id(parameter), []).append(name)
    return owners


def _weights(module: nn.Module) -> Iterable[Tensor]:
    if parametrize.is_parametrized(module, "weight"):
        return [*getattr(module, "parametrizations").weight.parameters()]  # noqa: B009
    return [p for name, p in module.named_parameters(recurse=False) if name != "bias"]


def _last(seen: Trace) -> set[str]:
    """Per output tensor: the layers that nobody else reads, or else the one called last."""
    order = {layer.name: i for i, layer in enumerate(seen.layers)}
    found: set[str] = set()
    for head in seen.heads:
        unread = {name for name in head if not seen.layers[order[name]].consumers}
        found |= unread or set(sorted(head, key=order.__getitem__)[-1:])
    return found


def _unsound(
    layer: Seen, modules: dict[str, nn.Module], seen: Trace, owners: dict[int, list[str]]
) -> str | None:
    """Why a layer cannot be pruned soundly, or None."""
    groups = int(getattr(layer.module, "groups", 1))
    reason = _not_plain(layer, modules, seen, owners)
    if reason is not None:
        return reason
    if groups > 1 and groups == getattr(layer.module, "in_channels", None):
        return "depthwise convolution: each filter has only one input"
    if layer.outputs % seen.images:
        return "the rows of its input cannot be assigned to images"
    return None


def _not_plain(
    layer: Seen, modules: dict[str, nn.Module], seen: Trace, owners: dict[int, list[str]]
) -> str | None:
    """Why a layer does something else with its weight than its kind says, or None."""
    module = layer.module
    weight: Tensor = getattr(module, "weight")  # noqa: B009
    inside = _parent_of(layer.name, modules, _ATTENTION)
    tied = next((o for p in _weights(module) if len(o := owners.get(id(p), [])) > 1), None)
    if inside is not None:
        return f"part of {type(modules[inside]).__name__} {inside!r}"
    if not own_parametrization(module):
        names = {type(each).__name__ for each in _on_weight(module)}
        return f"its weight is parametrized already ({', '.join(sorted(names))})"
    if not parametrize.is_parametrized(module, "weight") and "weight" not in module._parameters:
        return "its weight is computed by a hook (weight_norm, spectral_norm, torch prune)"
    if type(weight) not in (Tensor, nn.Parameter) or not weight.is_floating_point():
        return f"its weight is no plain floating tensor ({type(weight).__name__}, {weight.dtype})"
    if tied is not None:
        return f"shares its weight with {', '.join(repr(n) for n in tied if n != layer.name)}"
    if layer.name in seen.borrowed:
        return "its weight is also used outside its own forward"
    if not _plain_forward(module, layer.kind):
        return f"its class {type(module).__name__} has a forward of its own"
    return None


def _plain_forward(module: nn.Module, kind: str) -> bool:
    base = KINDS[kind]
    return all(
        getattr(type(module), name, None) is getattr(base, name, None)
        for name in ("forward", "_conv_forward")
    ) and "forward" not in vars(module)


def _parent_of(
    name: str, modules: dict[str, nn.Module], kinds: tuple[type[nn.Module], ...]
) -> str | None:
    """The innermost module around ``name`` (itself excluded) of one of these kinds."""
    while name:
        name = name.rpartition(".")[0]
        if isinstance(modules.get(name), kinds):
            return name
    return None


def left_alone(modules: dict[str, nn.Module], seen: Trace) -> Iterable[LeftAlone]:
    layers = {layer.name for layer in seen.layers}
    for name, module in modules.items():
        if name in layers or _parent_of(name, modules, (parametrize.ParametrizationList,)):
            continue
        reason = _why_left(name, module, modules, seen)
        if reason is not None:
            yield LeftAlone(name, type(module).__name__.removeprefix("Parametrized"), reason)


def _why_left(
    name: str, module: nn.Module, modules: dict[str, nn.Module], seen: Trace
) -> str | None:
    if isinstance(module, (*NORMS, parametrize.ParametrizationList)):
        return None
    if "quantized" in type(module).__module__:
        return "quantized"
    if isinstance(module, torch.jit.ScriptModule):
        inner = _parent_of(name, modules, (torch.jit.ScriptModule,)) is not None
        return None if inner or not any(True for _ in module.parameters()) else "TorchScript"
    own = list(module.parameters(recurse=False))
    lazy = any(is_lazy(p) for p in own)
    if not kind_of(module) and not lazy and not any(p.ndim > 1 for p in own):
        return None
    inside = _parent_of(name, modules, _ATTENTION)
    for kinds, reason in _REASONS:
        if isinstance(module, kinds):
            return reason
    if inside is not None:
        return f"part of {type(modules[inside]).__name__} {inside!r}"
    if lazy:
        return "has no weights yet (lazy module)"
    if name in seen.borrowed:
        return "its weight is used directly, not by calling it"
    if kind_of(module) and name not in seen.called:
        return "never called in the forward pass"
    return "weights of its own that are neither a convolution nor linear"


def ignored_layers(modules: dict[str, nn.Module], ignore: Sequence[Ignore]) -> dict[str, str]:
    """Reason by layer name; an entry that matches nothing is an error."""
    layers = [name for name, module in modules.items() if kind_of(module)]
    found: dict[str, str] = {}
    for entry in ignore:
        hits = [name for name in layers if _matches(entry, name, modules)]
        shown = entry.__name__ if isinstance(entry, type) else getattr(entry, "pattern", entry)
        if not hits:
            raise InputError(
                f"ignore={shown!r} matches no convolution or linear layer of this network."
                f"{closest(str(shown), layers, alike=0.4)}"
            )
        for name in hits:
            found.setdefault(name, f"ignored ({shown})")
    return found


def _matches(entry: Ignore, name: str, modules: dict[str, nn.Module]) -> bool:
    parts = name.split(".")
    around = [".".join(parts[:end]) for end in range(len(parts), 0, -1)]
    if isinstance(entry, type):
        return any(isinstance(modules.get(each), entry) for each in around)
    if isinstance(entry, re.Pattern):
        return entry.search(name) is not None
    if not isinstance(entry, str):
        raise InputError(
            "'ignore' takes layer names, patterns, compiled regular expressions or module types. "
            f"Got {entry!r}."
        )
    return entry in around or fnmatch.fnmatchcase(name, entry)

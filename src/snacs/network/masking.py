"""Masks as torch parametrizations: on, off again, or for good.

A mask sits on ``module.weight`` as a :class:`Mask`, so ``module.weight`` is the pruned tensor in
every forward pass and every training loop, while the optimizer goes on seeing the same
``Parameter`` object, now named ``parametrizations.weight.original``. :func:`remove_` gives that
object back as it is, :func:`bake_` writes the zeros into it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvTransposeNd
from torch.nn.utils import parametrize

from snacs.errors import InputError, closest
from snacs.network.silence import dead_filters, silent_norms
from snacs.values import BoolArray, Structure


class Mask(nn.Module):
    """Zero where ``keep`` is False: (c_out, c_in) on a weight, (channels,) on a norm or a bias.

    ``repaired`` says that the tensor underneath has been changed by repair and is no longer the
    dense one. Both buffers are part of the ``state_dict``.
    """

    keep: Tensor
    repaired: Tensor

    def __init__(self, keep: Tensor, *, repaired: bool = False) -> None:
        super().__init__()
        self.register_buffer("keep", keep)
        self.register_buffer("repaired", torch.tensor(repaired, device=keep.device))

    def forward(self, weight: Tensor) -> Tensor:
        # where() and not a product: a masked NaN or −x stays a plain zero, and memory format holds.
        return torch.where(spread(self.keep, weight), weight, weight.new_zeros(()))

    def right_inverse(self, weight: Tensor) -> Tensor:
        """Assigning to a masked weight sets the hidden tensor."""
        return weight

    def extra_repr(self) -> str:
        return f"{int(self.keep.sum())} of {self.keep.numel()} kept"


def spread(keep: Tensor, weight: Tensor) -> Tensor:
    """``keep`` in a shape that broadcasts over ``weight``; (c_out, C) spreads to (c_out, C·S)."""
    if keep.ndim == 1:
        return keep
    if weight.ndim > 2:
        return keep.reshape(*keep.shape, *(1 for _ in range(weight.ndim - 2)))
    return keep.repeat_interleave(weight.shape[1] // keep.shape[1], dim=1)


def apply_(
    model: nn.Module,
    layers: Mapping[str, BoolArray],
    *,
    structure: Structure | None = None,
    silence: bool = True,
) -> list[str]:
    """Put masks on the weights of ``layers``, in place of any masks that are there.

    Parameters
    ----------
    layers : mapping of layer name to a bool array (c_out, c_in)
        True stays. Behind a Flatten, c_in counts channels: a weight (c_out, C·S) takes (c_out, C).
    structure : Structure, optional
        From ``find_structure``; needed to find the BatchNorm of dead filters.
    silence : bool
        Mask also the bias of filters that lost all their kernels, and scale and shift of BatchNorm
        channels that nothing but such filters reach, so that a dead filter's output is exactly 0.

    Returns
    -------
    list of str
        What could not be silenced, and why.

    Examples
    --------
    >>> model = nn.Sequential(nn.Linear(2, 2))
    >>> apply_(model, {"0": np.array([[True, False], [False, False]])})
    []
    >>> int((model[0].weight != 0).sum()), int((model[0].bias != 0).sum())
    (1, 1)
    """
    wanted = {name: _check(model, name, keep, structure) for name, keep in layers.items()}
    _check_sharing(model, wanted)
    tensors: dict[tuple[str, str], BoolArray] = {
        (name, "weight"): keep for name, keep in wanted.items()
    }
    notes: list[str] = []
    if silence:
        rows = {name: dead_filters(keep) for name, keep in wanted.items()}
        dead = {name: filters for name, filters in rows.items() if filters.any()}
        for name, filters in dead.items():
            if _has_tensor(model.get_submodule(name), "bias"):
                tensors[name, "bias"] = ~filters
        silent, notes = silent_norms(model, dead, structure)
        for name, channels in silent.items():
            tensors[name, "weight"] = tensors[name, "bias"] = ~channels
    # Weights that an earlier repair changed stay marked so under their new masks.
    repaired = {key for key, mask in _masks(model) if bool(mask.repaired)}
    remove_(model)
    try:
        for (name, tensor), keep in tensors.items():
            _register(model.get_submodule(name), tensor, keep, repaired=(name, tensor) in repaired)
    except BaseException:
        remove_(model)
        raise
    return notes


def remove_(model: nn.Module) -> None:
    """Take all masks off; values, ``Parameter`` objects and classes are what they were before.

    What training or repair changed meanwhile under the masks stays changed.
    """
    for name, tensor in [key for key, _ in _masks(model)]:
        _unregister(model.get_submodule(name), tensor)


def bake_(model: nn.Module) -> None:
    """Make masks permanent: zeros in the plain parameters, the same objects, plain keys."""
    for name, tensor in [key for key, _ in _masks(model)]:
        module = model.get_submodule(name)
        with torch.no_grad():
            original_of(module, tensor).copy_(getattr(module, tensor))
        _unregister(module, tensor)


def masks_of(model: nn.Module) -> dict[str, BoolArray]:
    """(c_out, c_in) ``keep`` by layer name: what :func:`apply_` was given."""
    return {name: _array(mask) for (name, _), mask in _masks(model) if mask.keep.ndim == 2}


def silenced_of(model: nn.Module) -> dict[str, BoolArray]:
    """(channels,) ``keep`` of silenced biases and norms, by "module.weight" or "module.bias"."""
    return {
        f"{name}.{tensor}" if name else tensor: _array(mask)
        for (name, tensor), mask in _masks(model)
        if mask.keep.ndim == 1
    }


def is_masked(model: nn.Module) -> bool:
    """Whether any module carries a mask."""
    return any(True for _ in _masks(model))


def mask_of(module: nn.Module, tensor: str = "weight") -> Mask | None:
    """The mask on one tensor of one module, or None."""
    if not parametrize.is_parametrized(module, tensor):
        return None
    stack: Any = getattr(module.parametrizations, tensor)
    return next((part for part in stack if isinstance(part, Mask)), None)


def original_of(module: nn.Module, tensor: str = "weight") -> Tensor:
    """The tensor that the optimizer holds: the one under the mask, or the plain one."""
    holder: Any = module
    if mask_of(module, tensor) is not None:
        holder, tensor = getattr(module.parametrizations, tensor), "original"
    found = getattr(holder, tensor)
    if not isinstance(found, Tensor):
        raise InputError(f"{type(module).__name__} has no tensor {tensor!r}.")
    return found


def check_network(model: Any) -> None:
    """Refuse what is no network; of what carries one, say where it is."""
    if not isinstance(model, nn.Module):
        kind = type(model).__name__
        inner = isinstance(getattr(model, "model", None), nn.Module)
        hint = f" The network of a {kind} is its .model." if inner else ""
        raise InputError(f"'model' must be a torch.nn.Module. Got {kind}.{hint}")


def _masks(model: nn.Module) -> Iterable[tuple[tuple[str, str], Mask]]:
    check_network(model)
    for name, module in model.named_modules():
        for tensor in ("weight", "bias"):
            mask = mask_of(module, tensor)
            if mask is not None:
                yield (name, tensor), mask


def _array(mask: Mask) -> BoolArray:
    keep: BoolArray = mask.keep.detach().cpu().numpy().copy()
    return keep


def _check(model: nn.Module, name: str, keep: BoolArray, structure: Structure | None) -> BoolArray:
    """The mask as an array, or an error that names both sides of the mismatch."""
    modules = dict(model.named_modules())
    if name not in modules:
        hint = closest(name, modules, most=1)
        raise InputError(f"The network has no layer {name!r}, which a mask was given for.{hint}")
    module = modules[name]
    if not _has_tensor(module, "weight") or isinstance(module, _ConvTransposeNd):
        raise InputError(
            f"Layer {name!r} ({type(module).__name__}) cannot carry a mask: expected a Conv or "
            "Linear module with a 'weight' parameter."
        )
    if parametrize.is_parametrized(module, "weight") and len(_stack(module, "weight")) > (
        mask_of(module) is not None
    ):
        kinds = ", ".join(type(p).__name__ for p in _stack(module, "weight"))
        raise InputError(
            f"The weight of layer {name!r} carries other parametrizations ({kinds}). Take them off "
            "with torch.nn.utils.parametrize.remove_parametrizations before pruning."
        )
    array = np.asarray(keep)
    shape = tuple(original_of(module).shape)
    fits = array.ndim == 2 and len(shape) >= 2 and array.shape[0] == shape[0]
    if fits and len(shape) == 2:
        fits = array.shape[1] > 0 and shape[1] % array.shape[1] == 0
    elif fits:
        fits = array.shape[1] == shape[1]
    known = next((la for la in structure or () if la.name == name), None)
    if fits and known is not None:
        fits = array.shape == (known.c_out, known.c_in)
    if not fits or array.dtype != np.bool_:
        expected = f" and {(known.c_out, known.c_in)} connections" if known else ""
        raise InputError(
            f"The mask of layer {name!r} must be a bool array (c_out, c_in) for its weight "
            f"of shape {shape}{expected}. Got {array.dtype} of shape {array.shape}."
        )
    return array


def _check_sharing(model: nn.Module, wanted: Mapping[str, BoolArray]) -> None:
    """One Parameter in two modules can carry one mask only, or baking it would prune both."""
    users: dict[int, list[str]] = {}
    for name, module in model.named_modules():
        if _has_tensor(module, "weight"):
            users.setdefault(id(original_of(module)), []).append(name)
    for name, keep in wanted.items():
        for other in users[id(original_of(model.get_submodule(name)))]:
            if other not in wanted or not np.array_equal(wanted[other], keep):
                raise InputError(
                    f"Layers {name!r} and {other!r} share one weight and need the same mask. "
                    "Give both the same one, or leave both out (ignore=)."
                )


def _has_tensor(module: nn.Module, tensor: str) -> bool:
    if parametrize.is_parametrized(module, tensor):
        return True
    return isinstance(module._parameters.get(tensor), Tensor)


def _stack(module: nn.Module, tensor: str) -> Any:
    return getattr(module.parametrizations, tensor)


def _register(module: nn.Module, tensor: str, keep: BoolArray, *, repaired: bool) -> None:
    _own_class(module)
    device = original_of(module, tensor).device
    mask = Mask(torch.from_numpy(keep.copy()).to(device), repaired=repaired)
    parametrize.register_parametrization(module, tensor, mask)


def _unregister(module: nn.Module, tensor: str) -> None:
    if len(_stack(module, tensor)) > 1:
        kinds = ", ".join(type(p).__name__ for p in _stack(module, tensor))
        raise InputError(
            f"The {tensor} of a {type(module).__name__} carries more than its mask ({kinds}). Take "
            "the other parametrizations off first."
        )
    _own_class(module)
    parametrize.remove_parametrizations(module, tensor, leave_parametrized=False)
    # Re-registering put the tensor last; optimizers saved by index rely on weight before bias.
    parameters = module._parameters
    for name in [n for n in ("weight", "bias") if n in parameters] + [
        n for n in parameters if n not in ("weight", "bias")
    ]:
        parameters[name] = parameters.pop(name)


def _own_class(module: nn.Module) -> None:
    """Give a parametrized module a class of its own.

    Torch injects a class per module, but a deep copy shares the class of its model: taking the
    mask off the copy would delete the property ``weight`` from the model as well.
    """
    if parametrize.is_parametrized(module):
        shared = type(module)
        body = {k: v for k, v in vars(shared).items() if k not in ("__dict__", "__weakref__")}
        module.__class__ = type(shared.__name__, shared.__bases__, body)

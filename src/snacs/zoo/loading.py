"""Finding a network by what a user types: a name of the zoo, or ``package.module:factory``."""

from __future__ import annotations

import copy
import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import nn

from snacs.errors import InputError, closest
from snacs.zoo.entry import Entry
from snacs.zoo.networks import NETWORKS

Build = Callable[[], nn.Module]


def network(spec: str) -> tuple[Build, Entry | None]:
    """What builds the network that ``spec`` names, and what the zoo knows about it.

    Parameters
    ----------
    spec : a name in :data:`~snacs.zoo.networks.NETWORKS`, or ``package.module:factory``, where
        the factory is a function or class that is called without arguments, or a module. The
        current folder is searched first, and importing runs the user's own code.

    Returns
    -------
    build : callable without arguments that returns a new network at every call
    entry : the zoo's entry; None for a network of the user's own

    >>> network("resnet56")[1].classes
    10
    """
    if spec in NETWORKS:
        return NETWORKS[spec].build, NETWORKS[spec]
    module_name, colon, attribute = spec.partition(":")
    if not colon:
        raise InputError(
            f"There is no network {spec!r} in the zoo.{closest(spec, NETWORKS)} "
            f"Give one of {', '.join(sorted(NETWORKS))}, or your own as package.module:factory."
        )
    if not module_name or not attribute:
        raise InputError(f"Name your own network as package.module:factory. Got {spec!r}.")
    factory = _attribute(_module(module_name, spec), attribute, spec)
    if isinstance(factory, nn.Module):
        return lambda: copy.deepcopy(factory), None
    if not callable(factory):
        raise InputError(
            f"{spec!r} must be a torch.nn.Module, or a function or class that returns one when "
            f"called without arguments. Got a value of type {type(factory).__name__}."
        )
    return lambda: _build(factory, spec), None


def _module(name: str, spec: str) -> Any:
    if name.endswith(".py") or "/" in name or "\\" in name:
        guess = name.removesuffix(".py").replace("\\", "/").strip("./").replace("/", ".")
        raise InputError(
            f"{spec!r} names a file. Name the Python module instead, without .py, from a folder "
            f"in which Python finds it: {guess}:{spec.partition(':')[2]}."
        )
    try:
        with _current_folder_first():
            return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(error.name + ".")):
            raise InputError(
                f"There is no Python module {error.name!r} (from {spec!r}) in {Path.cwd()} or in "
                "the installed packages. Run the command in the folder that holds it, or install "
                "it."
            ) from error
        raise InputError(
            f"{name!r} could not be imported: it needs the module {error.name!r}, which is not "
            "installed."
        ) from error
    except Exception as error:
        raise InputError(
            f"{name!r} could not be imported: {type(error).__name__}: {error}."
        ) from error


def _attribute(module: Any, attribute: str, spec: str) -> Any:
    value = module
    for part in attribute.split("."):
        if not hasattr(value, part):
            names = [name for name in dir(value) if not name.startswith("_")]
            raise InputError(
                f"{module.__name__!r} ({getattr(module, '__file__', 'built in')}) has no "
                f"{part!r}, which {spec!r} asks for.{closest(part, names)}"
            )
        value = getattr(value, part)
    return value


def _build(factory: Callable[[], Any], spec: str) -> nn.Module:
    try:
        # Factories may import lazily, so the folder is there for the call too.
        with _current_folder_first():
            model = factory()
    except Exception as error:
        raise InputError(
            f"{spec!r} could not be called without arguments: {type(error).__name__}: {error}. "
            "Write a function that takes no arguments and returns the network."
        ) from error
    if not isinstance(model, nn.Module):
        raise InputError(f"{spec!r} must return a torch.nn.Module. Got {type(model).__name__}.")
    return model


@contextmanager
def _current_folder_first() -> Iterator[None]:
    folder = str(Path.cwd())
    sys.path.insert(0, folder)
    # Modules written since the interpreter started would otherwise not be seen.
    importlib.invalidate_caches()
    try:
        yield
    finally:
        if folder in sys.path:
            sys.path.remove(folder)

"""Pruned networks by name: a .snacs file, the folder of a `snacs prune`, or network and weights."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from snacs.artifact import inspect, load
from snacs.cli.inputs import example, open_model
from snacs.errors import InputError, RunFolderError
from snacs.reporting.folder import read_findings, run_below
from snacs.zoo.weights import find_weights, normalisation_of


@dataclass(frozen=True, eq=False)
class Opened:
    """A network, two images for it, what is known about it, and the run folder if it is one."""

    model: nn.Module
    images: Tensor
    facts: dict[str, Any] = field(default_factory=dict)
    folder: Path | None = None


def open_pruned(arguments: argparse.Namespace, *, any_weights: bool = False) -> Opened:
    """What NET, --weights and --shape name.

    Parameters
    ----------
    any_weights : whether the zoo's trained weights or random ones will do if none are given.
    """
    path = Path(arguments.network)
    if path.suffix == ".snacs":
        return _open_file(arguments, path)
    named = path.is_dir() and arguments.weights is None
    folder = _open_run(arguments, path) if named else None
    if arguments.weights is None and any_weights:
        arguments.weights = find_weights(arguments.network)
    elif arguments.weights is None:
        raise InputError(
            f"Give the pruned weights of {arguments.network}: --weights FILE.safetensors; or, "
            "instead of its name, a .snacs file or the folder of a `snacs prune`."
        )
    model, entry = open_model(arguments)
    facts: dict[str, Any] = {"network": arguments.network}
    if arguments.weights is not None:
        normalisation = normalisation_of(arguments.weights, entry)
        if normalisation is not None:
            facts["normalisation"] = normalisation.as_dict()
    return Opened(model, example(arguments, entry), facts, folder)


def check_output(target: Path | None, arguments: argparse.Namespace) -> None:
    """Refuse to write over what was opened."""
    for source in (arguments.network, arguments.weights):
        if target is None or source is None or not Path(source).is_file():
            continue
        if target.exists() and target.samefile(source):
            raise InputError(f"{target} is what is read. Give the output another name.")


def _open_file(arguments: argparse.Namespace, path: Path) -> Opened:
    if arguments.weights is not None:
        raise InputError(f"{path} holds its own weights; leave --weights out.")
    known = inspect(path).provenance
    _know_shape(arguments, known.get("input_shape"))
    facts = {name: value for name, value in known.items() if name != "versions"}
    return Opened(load(path), example(arguments, None), facts)


def _open_run(arguments: argparse.Namespace, path: Path) -> Path:
    """Note the network, the weights and the shape of a run as if they had been typed."""
    folder = run_below(path)
    found = read_findings(folder)
    name = found.arguments.get("network")
    weights = folder / "pruned.safetensors"
    if not isinstance(name, str) or found.result is None or not weights.exists():
        raise RunFolderError(
            f"{path} holds no network that was pruned by its plan: `snacs prune` writes one. For "
            f"the masks of a plan: snacs bench NET --masks {path / 'plan'}."
        )
    arguments.network, arguments.weights = name, weights
    _know_shape(arguments, None if found.plan is None else found.plan.facts.get("input_shape"))
    return folder


def _know_shape(arguments: argparse.Namespace, shape: object) -> None:
    if arguments.shape is None and isinstance(shape, list) and shape:
        arguments.shape = ",".join(str(side) for side in shape)

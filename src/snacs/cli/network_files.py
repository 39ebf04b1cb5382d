"""``snacs compact`` and ``snacs export``: pruned networks as files for use elsewhere."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from snacs.artifact import inspect, load, save, save_state_dict
from snacs.cli.inputs import example, open_model
from snacs.cli.showing import out, say
from snacs.errors import InputError
from snacs.network.compact import compact, compact_report
from snacs.runtime.onnx import export
from snacs.zoo.weights import normalisation_of

Arguments = argparse.Namespace


def compact_network(arguments: Arguments) -> None:
    """``snacs compact``: a smaller network with the same outputs, as one file."""
    model, images, facts = _open(arguments)
    small = compact(model, images, fold_batchnorm=arguments.fold_batchnorm)
    found = compact_report(small)
    saved = save(small, arguments.out, example=images, provenance=facts)
    shown = {
        **asdict(found),
        "removed_filters": found.removed_filters,
        "removed_weights": found.removed_weights,
        "file": str(saved.path),
        "bytes": saved.bytes,
        "standalone": saved.standalone,
    }
    out(arguments, shown, str(found))
    say(
        arguments,
        f"{saved.path}: {saved.bytes:,} bytes. In Python: snacs.load({str(saved.path)!r})",
    )


def export_network(arguments: Arguments) -> None:
    """``snacs export``: ONNX, or plain weights."""
    if arguments.onnx is None and arguments.safetensors is None:
        raise InputError("Say what to write: --onnx FILE, --safetensors FILE, or both.")
    model, images, _ = _open(arguments)
    written: dict[str, Any] = {}
    lines = []
    if arguments.onnx is not None:
        report = export(model, images, arguments.onnx, compact=not arguments.no_compact)
        written["onnx"] = asdict(report)
        lines.append(str(report))
    if arguments.safetensors is not None:
        plain = model if arguments.no_compact else compact(model, images)
        size = save_state_dict(plain, arguments.safetensors)
        written["safetensors"] = {"path": str(arguments.safetensors), "bytes": size}
        lines.append(f"{arguments.safetensors}: {size:,} bytes")
    out(arguments, written, "\n".join(lines))


def _open(arguments: Arguments) -> tuple[nn.Module, Tensor, dict[str, Any]]:
    """A network with its weights, two images for it, and what is known about it."""
    path = Path(arguments.network)
    if path.suffix == ".snacs":
        if arguments.weights is not None:
            raise InputError(f"{path} holds its own weights; leave --weights out.")
        known = inspect(path).provenance
        shape = known.get("input_shape")
        if arguments.shape is None and isinstance(shape, list) and shape:
            arguments.shape = ",".join(str(side) for side in shape)
        images = example(arguments, None)
        return load(path), images, {k: v for k, v in known.items() if k != "versions"}
    if arguments.weights is None:
        raise InputError(
            f"Give the pruned weights of {arguments.network}: --weights FILE.safetensors."
        )
    model, entry = open_model(arguments)
    normalisation = normalisation_of(arguments.weights, entry)
    facts: dict[str, Any] = {"network": arguments.network}
    if normalisation is not None:
        facts["normalisation"] = normalisation.as_dict()
    return model, example(arguments, entry), facts

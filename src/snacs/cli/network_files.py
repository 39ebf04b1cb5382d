"""``snacs compact`` and ``snacs export``: pruned networks as files for use elsewhere."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Any

from snacs.artifact import save, save_state_dict
from snacs.cli.opening import check_output, open_pruned
from snacs.cli.showing import out, say
from snacs.errors import InputError
from snacs.network.compact import compact, compact_report
from snacs.runtime.onnx import export

Arguments = argparse.Namespace


def compact_network(arguments: Arguments) -> None:
    """``snacs compact``: a smaller network with the same outputs, as one file."""
    opened = open_pruned(arguments)
    check_output(arguments.out, arguments)
    model, images = opened.model, opened.images
    small = compact(model, images, fold_batchnorm=arguments.fold_batchnorm)
    found = compact_report(small)
    saved = save(small, arguments.out, example=images, provenance=opened.facts)
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
    opened = open_pruned(arguments)
    for target in (arguments.onnx, arguments.safetensors):
        check_output(target, arguments)
    model, images = opened.model, opened.images
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

"""Export to ONNX: compacted, checked, compared with torch, with any batch size.

ONNX stores and computes dense tensors. What it gains from pruning is what compaction takes out;
zeros inside the layers that remain are multiplied like any other number. The report says how many
multiply-adds that concerns, so that nobody is surprised.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import math
import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from snacs.errors import InputError, ModelError
from snacs.files import replacing
from snacs.network.batches import evaluating, map_tensors, move, run, size_of, tensors_of
from snacs.network.compact import compact as compact_network
from snacs.network.compact import compact_report
from snacs.network.compaction.cutting import plain_copy
from snacs.network.compaction.probing import alive_of
from snacs.network.trace import trace, weight_shape

_OPSET = 17
_TOLERANCE = 1e-4
"""Of the largest output: what fused and reordered float32 sums may differ by."""


@dataclass(frozen=True)
class OnnxReport:
    """What was written, and what ONNX can and cannot gain from the zeros.

    Attributes
    ----------
    macs : int
        Multiply-adds per image of the network that went in, zeros included.
    macs_exported : int
        Those that ONNX computes: after compaction, zeros included.
    macs_kept : int
        Those of them that have a weight. The rest is what a sparse runtime could still save.
    difference : float
        Largest difference between onnxruntime and torch, relative to the largest output.
    """

    path: Path
    bytes: int
    opset: int
    macs: int
    macs_exported: int
    macs_kept: int
    difference: float
    compacted: bool
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        gained = self.macs / max(1, self.macs_exported)
        possible = self.macs_exported / max(1, self.macs_kept)
        lines = [
            f"{self.path}: {self.bytes:,} bytes, opset {self.opset}, any batch size; equals torch "
            f"to {self.difference:.1e} of the largest output",
            f"Gained: {self.macs:,} → {self.macs_exported:,} multiply-adds per image "
            f"({gained:.2f}× less), by removing whole filters",
        ]
        if self.macs_kept < self.macs_exported:
            share = 1 - self.macs_kept / self.macs_exported
            lines.append(
                f"Not gained: {share:.1%} of the remaining multiply-adds are with zeros, which "
                f"ONNX computes like any other; a sparse runtime can save up to "
                f"{possible:.2f}× more"
            )
        return "\n".join(lines + [f"Note: {note}" for note in self.notes])


def export(
    model: nn.Module, example: Any, path: str | os.PathLike[str], *, compact: bool = True
) -> OnnxReport:
    """Write a network as an ONNX file that takes batches of any size.

    Parameters
    ----------
    model : nn.Module
        Masked, baked, compacted or dense; it is not changed.
    example : x, (x, y) or a dict of inputs
        A batch as the network takes it; labels are left out.
    path : file, replaced in one step once everything has been checked
    compact : bool
        Take out dead filters first (:func:`snacs.compact`).

    Returns
    -------
    OnnxReport

    Raises
    ------
    ModelError
        If the exporter, ONNX's checker or onnxruntime refuses the network, or if onnxruntime's
        outputs differ from torch's. No file is left then.
    """
    onnx, runtime = _needed("onnx"), _needed("onnxruntime")
    plain = plain_copy(model)
    batch = move(example, plain)
    _inputs(batch)
    before = _macs(plain, batch)[0]
    notes: list[str] = []
    if compact:
        plain = compact_network(plain, batch).eval()
        notes += [
            f"Not removed: {len(r.layers)} layer(s), {r.reason}"
            for r in compact_report(plain).undone
        ]
    exported, kept = _macs(plain, batch)
    target = Path(path)
    with replacing(target) as fresh:
        notes += _write(plain, batch, fresh)
        difference = _check(onnx, runtime, plain, batch, fresh)
    return OnnxReport(
        path=target,
        bytes=target.stat().st_size,
        opset=_OPSET,
        macs=before,
        macs_exported=exported,
        macs_kept=kept,
        difference=difference,
        compacted=compact,
        notes=tuple(notes),
    )


def _needed(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise InputError(
            f"ONNX export needs the package {name}. Install it: pip install 'snacs[onnx]'."
        ) from error


def _macs(model: nn.Module, batch: Any) -> tuple[int, int]:
    """Multiply-adds per image, of all weights and of those other than 0."""
    seen = trace(model, batch)
    total = kept = 0
    for layer in seen.layers:
        positions = layer.outputs / seen.images
        alive = alive_of(layer.module)
        kernel = math.prod(weight_shape(layer.module)) // alive.size
        total += round(alive.size * kernel * positions)
        kept += round(int(alive.sum()) * kernel * positions)
    return total, kept


def _inputs(batch: Any) -> dict[str, Tensor]:
    """Inputs by name, as :func:`snacs.network.batches.default_forward` hands them over."""
    if isinstance(batch, Mapping):
        found = {k: v for k, v in batch.items() if k not in ("labels", "label", "y")}
    else:
        found = {"input": batch[0] if isinstance(batch, tuple | list) else batch}
    if not all(isinstance(value, Tensor) for value in found.values()):
        raise InputError("ONNX export takes x, (x, y), or a dict of tensors as the example.")
    return found


def _write(model: nn.Module, batch: Any, path: Path) -> list[str]:
    """Run the exporter; what it warns about comes back as notes."""
    inputs = _inputs(batch)
    with evaluating(model):
        outputs = list(tensors_of(run(model, batch)))
    if not outputs:
        raise ModelError("The network returns no tensors, so there is nothing to export.")
    names = [f"output{i}" if i else "output" for i in range(len(outputs))]
    named = isinstance(batch, Mapping)
    try:
        # The exporter prints its graph when it fails; the error says enough.
        quiet = contextlib.redirect_stdout(io.StringIO())
        with warnings.catch_warnings(record=True) as caught, evaluating(model), quiet:
            warnings.simplefilter("always")
            # The exporter by tracing: it needs no further package than onnx. Its successor
            # (dynamo=True) needs onnxscript.
            torch.onnx.export(
                model,
                () if named else tuple(inputs.values()),
                str(path),
                kwargs=inputs if named else None,
                dynamo=False,
                input_names=list(inputs),
                output_names=names,
                dynamic_axes={name: {0: "batch"} for name in (*inputs, *names)},
                opset_version=_OPSET,
            )
    except Exception as error:  # the exporter raises whatever its parts raise
        raise ModelError(
            f"torch cannot export this network to ONNX: {type(error).__name__}: {error}"
        ) from error
    told = {
        str(warning.message).splitlines()[0]
        for warning in caught
        if not issubclass(warning.category, DeprecationWarning)
    }
    # Of the exporter's own optimiser; the file is right without it.
    told = {text for text in told if not text.startswith("Constant folding")}
    return sorted(f"The exporter warns: {text}" for text in told)


def _check(onnx: Any, runtime: Any, model: nn.Module, batch: Any, path: Path) -> float:
    """Check the file and compare it with torch on the example, on one image and on three."""
    try:
        onnx.checker.check_model(str(path), full_check=True)
        options = runtime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        options.log_severity_level = 3
        session = runtime.InferenceSession(
            str(path), sess_options=options, providers=["CPUExecutionProvider"]
        )
    except Exception as error:
        raise ModelError(
            f"The exported file is refused: {type(error).__name__}: {error}"
        ) from error
    worst = 0.0
    for count in (size_of(batch), 1, 3):
        some = _images(batch, count)
        with evaluating(model):
            wanted = [t.cpu().numpy() for t in tensors_of(run(model, some))]
        given = {name: value.cpu().numpy() for name, value in _inputs(some).items()}
        try:
            found = session.run(
                None, {item.name: given[item.name] for item in session.get_inputs()}
            )
        except Exception as error:
            raise ModelError(
                f"onnxruntime cannot run the exported file on {count} image(s): {error} "
                "Does the network's forward write down the batch size?"
            ) from error
        worst = max(worst, _difference(found, wanted))
    if not worst <= _TOLERANCE:
        raise ModelError(
            f"onnxruntime's outputs differ from torch's by {worst:.1e} of the largest; at most "
            f"{_TOLERANCE:.0e} is allowed. Does the network's forward depend on its data?"
        )
    return worst


def _images(batch: Any, count: int) -> Any:
    size = size_of(batch)

    def take(tensor: Tensor) -> Tensor:
        if not tensor.ndim or tensor.shape[0] != size:
            return tensor
        return torch.cat([tensor] * (1 + count // size))[:count]

    return map_tensors(batch, take)


def _difference(found: list[Any], wanted: list[Any]) -> float:
    worst = 0.0
    for mine, other in zip(found, wanted, strict=True):
        if np.shape(mine) != other.shape:
            return math.inf
        largest = float(np.abs(other).max(initial=0.0))
        apart = float(np.abs(np.asarray(mine, np.float64) - other).max(initial=0.0))
        worst = max(worst, apart / max(1.0, largest))
    return worst

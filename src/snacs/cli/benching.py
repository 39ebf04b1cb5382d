"""``snacs bench``: what pruning brought in time, memory and bytes."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch
from torch import nn

from snacs.benching import Bench, bench
from snacs.cli.opening import open_pruned
from snacs.cli.showing import out, say
from snacs.errors import InputError
from snacs.experiments.gammas import largest_kernels, paper_limits
from snacs.files import sha256_of, write_json
from snacs.network.masking import apply_
from snacs.plans import Plan
from snacs.reporting import terminal

Arguments = argparse.Namespace

_COLUMNS = {
    "what": "what",
    "batch": "batch",
    "median_ms": "median ms",
    "best_ms": "best ms",
    "spread": "±",
    "images_per_second": "images/s",
    "speedup_best": "×",
    "ideal": "ideal",
    "of_ideal": "of ideal",
    "peak_mb": "peak MB",
    "file_mb": "file MB",
}
"""What the table in the terminal shows of a row; the JSON has all of it."""


def bench_network(arguments: Arguments) -> None:
    """Find the network, put masks on it if asked, measure, show, and keep the figures."""
    if arguments.threads is not None:
        if arguments.threads < 1:
            raise InputError(f"--threads must be at least 1. Got {arguments.threads}.")
        torch.set_num_threads(arguments.threads)
    batches = _batches(arguments.batches)
    opened = open_pruned(arguments, any_weights=True)
    folder, model, images = opened.folder, opened.model, opened.images
    if arguments.masks is not None:
        _mask_(model, arguments.network, arguments.masks)
    found = bench(
        model,
        images,
        batches=batches,
        seconds=arguments.seconds,
        onnx=not arguments.no_onnx,
        memory=not arguments.no_memory,
        progress=None if arguments.quiet or arguments.json else lambda text: say(arguments, text),
    )
    target = arguments.run or folder
    facts = found.as_dict()
    if folder is not None:  # so that a report knows which network was measured
        facts["weights_sha256"] = sha256_of(arguments.weights)
    if target is not None:
        write_json(target / "bench.json", facts)
    out(arguments, facts, *_tables(found, layers=arguments.layers))
    if target is not None:
        say(arguments, f"Kept in {target / 'bench.json'}; `snacs report {target}` shows it.")


def _batches(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise InputError(f"--batches must be numbers like 1,16,64. Got {text!r}.") from None


def _mask_(model: nn.Module, network: str, masks: str) -> None:
    """``uniform:0.8``, ``gamma`` (the paper's limits) or a plan's folder."""
    kinds = (nn.Conv2d, nn.Linear)
    layers = [name for name, module in model.named_modules() if isinstance(module, kinds)]
    if masks == "gamma":
        limits = paper_limits(network)
    elif masks.startswith("uniform:"):
        try:
            share = float(masks.removeprefix("uniform:"))
        except ValueError:
            share = -1.0
        if not 0 <= share < 1:
            raise InputError(f"--masks uniform:SHARE needs a share in [0, 1). Got {masks!r}.")
        limits = dict.fromkeys(layers[1:-1], share)
    elif Path(masks).is_dir():
        plan = Plan.load(Path(masks))
        apply_(model, plan.masks, structure=plan.structure, silence=plan.config.silence)
        return
    else:
        raise InputError(
            f"--masks must be uniform:SHARE, gamma or the folder of a plan. Got {masks!r}."
        )
    apply_(model, largest_kernels(model, {n: limit for n, limit in limits.items() if limit}))


def _tables(found: Bench, *, layers: bool) -> list[Any]:
    rows = [{title: row[name] for name, title in _COLUMNS.items()} for row in found.rows]
    parts: list[Any] = [terminal.cost_table("× is over dense torch, by best times", rows)]
    if layers:
        parts.append(terminal.cost_table("Layers in the sparse runtime", found.layers))
    return [*parts, "\n".join(found.notes)]

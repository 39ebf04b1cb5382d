"""A plan: masks and the reasons for them. A value; it never touches the model.

On disk a plan is a folder with ``plan.json`` and ``arrays.npz`` (plain arrays, no pickle), written
in one step and checked by hash when read.
"""

from __future__ import annotations

import hashlib
import io
import os
import zipfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from snacs.config import Config, Goal
from snacs.errors import InputError
from snacs.files import read_json, write_folder, write_json
from snacs.values import (
    BoolArray,
    Curve,
    Layer,
    LayerPlan,
    LeftAlone,
    Norm,
    Segment,
    Structure,
    Sum,
)

FORMAT = "snacs-plan"
VERSION = 1


@dataclass(frozen=True, eq=False)
class Plan:
    """What to prune in every layer, and why.

    Attributes
    ----------
    structure : Structure
        All layers of the network, those that are kept included.
    layers : tuple of LayerPlan
        One for each prunable layer, in order of the forward pass.
    threshold : float or None
        The SVM accuracy (α) that all curves were cut at, absolute or relative as configured.
    delta : float or None
        The score (δ) above which connections stayed, if one was in force.
    notes : tuple of str
        What the user should know: missing labels, imbalanced classes, protection
        that was given up.
    facts : dict
        Versions, seed, hashes of model and images.
    """

    structure: Structure
    layers: tuple[LayerPlan, ...]
    goal: Goal
    config: Config
    threshold: float | None = None
    delta: float | None = None
    notes: tuple[str, ...] = ()
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def masks(self) -> dict[str, BoolArray]:
        """``keep`` by layer name, (c_out, c_in), True stays."""
        return {layer.layer.name: layer.keep for layer in self.layers}

    @property
    def pruned(self) -> float:
        """Fraction of all Conv + Linear weights that go."""
        gone = sum((p.layer.connections - p.kept) * p.layer.kernel for p in self.layers)
        return gone / self.structure.weights

    @property
    def pruned_macs(self) -> float:
        """Fraction of all multiply-adds that go with them."""
        gone = sum(
            (p.layer.connections - p.kept) * p.layer.kernel * p.layer.positions for p in self.layers
        )
        return gone / self.structure.macs

    def __getitem__(self, name: str) -> LayerPlan:
        for layer in self.layers:
            if layer.layer.name == name:
                return layer
        raise KeyError(name)

    def __str__(self) -> str:
        lines = [
            f"Plan: {self.pruned:.2%} of {self.structure.weights:,} weights go, "
            f"{self.pruned_macs:.2%} of {self.structure.macs:,} MACs"
        ]
        width = max((len(layer.name) for layer in self.structure), default=0)
        planned = {p.layer.name: p for p in self.layers}
        for layer in self.structure:
            part = planned.get(layer.name)
            if part is None:
                lines.append(f"  {layer.name:<{width}}  kept: {layer.kept_because}")
            else:
                lines.append(
                    f"  {layer.name:<{width}}  {part.pruned:6.1%} of {layer.connections:,} "
                    f"connections, {int(part.protected.sum())} of {layer.c_out} filters protected"
                )
        lines += [f"  {left.name}: left alone, {left.reason}" for left in self.structure.left_alone]
        return "\n".join(lines + [f"Note: {note}" for note in self.notes])

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the plan as a folder, in one step; an older plan there is replaced."""
        target = Path(folder)
        if target.is_dir() and not (target / "plan.json").exists() and any(target.iterdir()):
            raise InputError(f"{target} exists and holds no plan; give another folder.")
        write_folder(target, self.write_into)

    def write_into(self, folder: Path) -> None:
        """Write the plan's files into an existing folder."""
        arrays: dict[str, np.ndarray[Any, Any]] = {}
        for index, part in enumerate(self.layers):
            arrays[f"keep{index}"] = np.packbits(part.keep)
            arrays[f"scores{index}"] = part.scores.astype(np.float32)
            arrays[f"protected{index}"] = part.protected
            if part.curve is not None:
                arrays[f"levels{index}"] = part.curve.levels
                arrays[f"accuracy{index}"] = part.curve.accuracy
        buffer = io.BytesIO()
        np.savez_compressed(buffer, allow_pickle=False, **arrays)
        content = buffer.getvalue()
        (folder / "arrays.npz").write_bytes(content)
        write_json(
            folder / "plan.json",
            {
                "format": FORMAT,
                "version": VERSION,
                "arrays": hashlib.sha256(content).hexdigest(),
                "structure": asdict(self.structure),
                "goal": asdict(self.goal),
                "config": self.config.as_dict(),
                "threshold": self.threshold,
                "delta": self.delta,
                "notes": list(self.notes),
                "facts": self.facts,
                "layers": [
                    {
                        "name": part.layer.name,
                        "limit": part.limit,
                        "occupancy": part.occupancy,
                        "base": part.curve.base if part.curve else None,
                        "share": part.curve.share if part.curve else 0.0,
                    }
                    for part in self.layers
                ],
            },
        )

    @staticmethod
    def load(folder: str | os.PathLike[str]) -> Plan:
        """Read a plan; foreign, cut or changed files give an :class:`InputError`."""
        path = Path(folder)
        try:
            facts = read_json(path / "plan.json")
            content = (path / "arrays.npz").read_bytes()
        except (FileNotFoundError, NotADirectoryError) as error:
            raise InputError(f"{path} holds no plan: {error.filename} is missing.") from error
        if not isinstance(facts, dict) or facts.get("format") != FORMAT:
            raise InputError(f"{path / 'plan.json'} was not written by snacs.")
        if facts.get("version") != VERSION:
            raise InputError(f"{path} was written by another version of snacs; make it anew.")
        if hashlib.sha256(content).hexdigest() != facts.get("arrays"):
            raise InputError(f"{path / 'arrays.npz'} was cut or changed; make the plan anew.")
        try:
            with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
                return _from_parts(facts, dict(arrays))
        except (KeyError, TypeError, ValueError, zipfile.BadZipFile) as error:
            raise InputError(f"{path / 'plan.json'} does not fit its arrays: {error}") from error


def _from_parts(facts: Mapping[str, Any], arrays: Mapping[str, np.ndarray[Any, Any]]) -> Plan:
    structure = _structure(facts["structure"])
    layers = []
    for index, part in enumerate(facts["layers"]):
        layer = structure[part["name"]]
        shape = (layer.c_out, layer.c_in)
        bits = np.unpackbits(arrays[f"keep{index}"], count=layer.connections)
        curve = None
        if f"levels{index}" in arrays:
            curve = Curve(
                arrays[f"levels{index}"], arrays[f"accuracy{index}"], part["base"], part["share"]
            )
        layers.append(
            LayerPlan(
                layer,
                bits.reshape(shape).astype(bool),
                arrays[f"scores{index}"].reshape(shape),
                float(part["limit"]),
                arrays[f"protected{index}"].reshape(layer.c_out),
                curve,
                dict(part["occupancy"]),
            )
        )
    return Plan(
        structure,
        tuple(layers),
        Goal(**facts["goal"]),
        Config.from_dict(facts["config"]),
        facts["threshold"],
        facts["delta"],
        tuple(facts["notes"]),
        dict(facts["facts"]),
    )


def _structure(values: Mapping[str, Any]) -> Structure:
    def segments(rows: Any) -> tuple[Segment, ...]:
        return tuple(Segment(**row) for row in rows)

    return Structure(
        layers=tuple(
            Layer(**{**row, "feeds": segments(row["feeds"]), "consumers": tuple(row["consumers"])})
            for row in values["layers"]
        ),
        norms=tuple(Norm(**{**row, "feeds": segments(row["feeds"])}) for row in values["norms"]),
        sums=tuple(Sum(**row) for row in values["sums"]),
        left_alone=tuple(LeftAlone(**row) for row in values["left_alone"]),
        outputs=segments(values["outputs"]),
        rectified=tuple(values.get("rectified", ())),
    )

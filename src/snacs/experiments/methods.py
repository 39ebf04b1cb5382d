"""Methods by name: the presets, and every simple score under every way of allocating.

``l2-global`` is a score and an allocation; a score alone stands under the uniform one. The options
of these baselines are written out here, so that a new default preset changes none of them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from snacs.config import PRESETS, SCORES, Config
from snacs.errors import InputError
from snacs.plans import Plan

MINT_GROUPS = 16
"""MINT's tree costs about 0.03 s per pair, so its filters are scored in this many groups."""

ALLOCATIONS: dict[str, dict[str, Any]] = {
    "uniform": {"allocation": "uniform"},
    "global": {"allocation": "global"},
    "tempered": {"allocation": "tempered"},
    "own": {"allocation": "svm", "reading": "relative"},
    "default": {"allocation": "manual"},
}
"""What follows a score's name: the same fraction of every layer; one threshold for all scores;
between these two; SVM curves measured with that score; as many connections of every layer as the
default preset takes."""

BASELINE: dict[str, Any] = {
    "samples": "positions",
    "positions": 4,
    "batch": 100,
    "view": "child",
    "support": "full",
    "conditional": True,
    "hash": "projection",
    "directions": 4,
    "width": 0.5,
    "contribution_width": 0.1,
    "shifts": 4,
    "groups": None,
    "scaling": "one",
    "reading": "relative",
    "cap": 1.0,
    "classes": 50,
    "limits": {},
    "threshold": None,
    "threshold_from": None,
    "shares": (),
    "sensitivity": "absolute",
    "protect": {},
    "granularity": "connection",
    "multiple": 16,
    "ties": "index",
    "coupling": 0.0,
    "silence": True,
    "sequential": True,
    "exchange": 0,
    "curves": False,
}
"""All options of a baseline's plan but its score and its allocation. Curves are measured where the
allocation reads them; nobody looks at the others."""
IN_ORDER: dict[str, Any] = {"repair": True, "ridge": 1e-3, "doubt": 1.0}
"""What a plan depends on besides, if its connections are chosen layer after layer."""


@dataclass(frozen=True)
class Method:
    """A way to prune.

    ``options`` say all that its plan depends on; the rest of ``config`` is about repair.
    """

    name: str
    config: Config
    options: Mapping[str, Any]
    follows: bool = False
    """Whether its layers give as much as those of the default preset."""
    changed: frozenset[str] = frozenset()
    """Options that this method was asked to have its own values of, those of repair included."""
    foreign: bool = False
    """Whether another program chooses the filters, at as many MACs as the default preset."""

    def following(self, plan: Plan) -> Method:
        """The same with the counts of another plan."""
        limits = {part.layer.name: part.pruned for part in plan.layers}
        config = replace(self.config, limits=limits)
        return replace(self, config=config, options={**self.options, "limits": limits})


def repairing(config: Config, changed: frozenset[str] = frozenset()) -> Config:
    """The same with the repair of the default preset, with which all methods are repaired.

    Options that a method was asked to change stay as they are, but for ``repair`` and
    ``batchnorm``: every cell is repaired.
    """
    known = {*BASELINE, "score", "allocation", "count", *changed}
    shared = {n: value for n, value in PRESETS["default"].as_dict().items() if n not in known}
    return replace(config, **{**shared, "repair": True, "batchnorm": True})


def method_of(name: str, *, count: int = 1000) -> Method:
    """The method that a name stands for; ``count`` is the number of calibration images.

    >>> method_of("l2-activation-global").config.allocation
    'global'
    >>> method_of("l1").config.allocation
    'uniform'
    >>> method_of("default+refine=false").config.refine
    False
    >>> method_of("l2-default+coupling=0.5").config.coupling
    0.5
    """
    plain, *texts = name.split("+")
    changes = dict(map(_change, texts))
    if plain in PRESETS:
        return preset_method(name, plain, count=count, **changes)
    if name == "torch-pruning":
        chosen: dict[str, Any] = {**BASELINE, "count": count, "score": "l2"}
        return Method(name, Config.preset("default", **chosen), {"name": name}, foreign=True)
    score = next((s for s in sorted(SCORES, key=len, reverse=True) if _starts(plain, s)), None)
    rest = "" if score is None else plain[len(score) + 1 :]
    if score is None or (rest and rest not in ALLOCATIONS):
        raise InputError(
            f"There is no method {name!r}. Give a preset ({', '.join(PRESETS)}) or a score "
            f"({', '.join(SCORES)}), alone or with an allocation ({', '.join(ALLOCATIONS)}): "
            "l2-global; either with other options: default+repair=false; or torch-pruning."
        )
    options: dict[str, Any] = {**BASELINE, "count": count, "score": score}
    options |= ALLOCATIONS[rest or "uniform"]
    if score == "mint":
        options["groups"] = MINT_GROUPS
    if score == "information":
        options |= IN_ORDER
    options |= changes
    return Method(
        name,
        Config.preset("default", **options),
        options,
        follows=rest == "default",
        changed=frozenset(changes),
    )


def preset_method(name: str, preset: str, *, count: int = 1000, **changes: Any) -> Method:
    """A preset with some options changed, under a name of its own."""
    config = Config.preset(preset, count=count, **changes)
    options = config.as_dict()
    if preset != "default":  # options that only the default preset uses must not change its keys
        known = {*BASELINE, "score", "allocation", "count"}
        options = {option: value for option, value in options.items() if option in known}
    return Method(name, config, options, changed=frozenset(changes))


def _change(text: str) -> tuple[str, Any]:
    """``ridge=0.01`` as a name and a value, read as by ``--set``; shares stand between colons.

    >>> _change("refine=false"), _change("score=l2"), _change("shares=0.1:0.2")
    (('refine', False), ('score', 'l2'), ('shares', [0.1, 0.2]))
    """
    name, equals, value = text.partition("=")
    if not equals:
        raise InputError(f"An option of a method reads name=value: refine=false. Got {text!r}.")
    if name == "shares":  # a comma would begin the next method
        value = f"[{value.replace(':', ',')}]"
    try:
        return name, json.loads(value)
    except json.JSONDecodeError:
        return name, value


def _starts(name: str, score: str) -> bool:
    return name == score or name.startswith(f"{score}-")

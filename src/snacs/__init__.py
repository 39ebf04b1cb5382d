"""snacs: prune a PyTorch network by what its connections carry.

>>> import snacs
>>> sorted(snacs.PRESETS)
['default', 'paper']

The verbs are :func:`plan`, :func:`prune`, :func:`apply_`, :func:`remove_`, :func:`bake_`,
:func:`repair_` and :func:`retrain_`. Names are imported when they are first used, so that
``import snacs`` costs nothing and worker processes need no torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_PLACES = {
    "Config": "snacs.config",
    "Goal": "snacs.config",
    "PRESETS": "snacs.config",
    "InputError": "snacs.errors",
    "ModelError": "snacs.errors",
    "Plan": "snacs.plans",
    "Pruned": "snacs.pipeline",
    "RECIPES": "snacs.training",
    "Recipe": "snacs.training",
    "RunFolderError": "snacs.errors",
    "SnacsError": "snacs.errors",
    "TargetError": "snacs.errors",
    "accuracy": "snacs.network.cost",
    "apply_": "snacs.pipeline",
    "bake_": "snacs.network.masking",
    "bench": "snacs.benching",
    "compact": "snacs.network.compact",
    "compact_report": "snacs.network.compact",
    "compile": "snacs.runtime.compiled",
    "cost": "snacs.network.cost",
    "find_structure": "snacs.network.layers",
    "load": "snacs.artifact",
    "plan": "snacs.pipeline",
    "prune": "snacs.pipeline",
    "remove_": "snacs.network.masking",
    "repair_": "snacs.pipeline",
    "report": "snacs.reporting.page",
    "retrain_": "snacs.pipeline",
    "save": "snacs.artifact",
}

__all__ = ["__version__", *sorted(_PLACES)]

if TYPE_CHECKING:
    from snacs.artifact import load as load
    from snacs.artifact import save as save
    from snacs.benching import bench as bench
    from snacs.config import PRESETS as PRESETS
    from snacs.config import Config as Config
    from snacs.config import Goal as Goal
    from snacs.errors import InputError as InputError
    from snacs.errors import ModelError as ModelError
    from snacs.errors import RunFolderError as RunFolderError
    from snacs.errors import SnacsError as SnacsError
    from snacs.errors import TargetError as TargetError
    from snacs.network.compact import compact as compact
    from snacs.network.compact import compact_report as compact_report
    from snacs.network.cost import accuracy as accuracy
    from snacs.network.cost import cost as cost
    from snacs.network.layers import find_structure as find_structure
    from snacs.network.masking import bake_ as bake_
    from snacs.network.masking import remove_ as remove_
    from snacs.pipeline import Pruned as Pruned
    from snacs.pipeline import apply_ as apply_
    from snacs.pipeline import plan as plan
    from snacs.pipeline import prune as prune
    from snacs.pipeline import repair_ as repair_
    from snacs.pipeline import retrain_ as retrain_
    from snacs.plans import Plan as Plan
    from snacs.reporting.page import report as report
    from snacs.runtime.compiled import compile as compile
    from snacs.training import RECIPES as RECIPES
    from snacs.training import Recipe as Recipe


def __getattr__(name: str) -> Any:
    if name in _PLACES:
        return getattr(importlib.import_module(_PLACES[name]), name)
    raise AttributeError(f"module 'snacs' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__

"""The README's example runs as it stands, and the doctests of the package hold."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
from pathlib import Path

import pytest
import torch

import snacs

ROOT = Path(__file__).parent.parent


def _modules() -> list[str]:
    names = [m.name for m in pkgutil.walk_packages(snacs.__path__, "snacs.")]
    return ["snacs", *(name for name in names if not name.endswith("__main__"))]


def test_the_readme_example_runs():
    torch.manual_seed(0)
    result = doctest.testfile(str(ROOT / "README.md"), module_relative=False)
    assert result.attempted >= 7
    assert result.failed == 0


@pytest.mark.parametrize("name", _modules())
def test_the_examples_in_docstrings_hold(name):
    result = doctest.testmod(importlib.import_module(name))
    assert result.failed == 0

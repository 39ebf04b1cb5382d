"""What all tests share: where the real weights and images are, and a skip that says so."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder with real weights and images; tests that need it skip where it is not."""
    folder = Path(os.environ.get("SNACS_SHARED", ROOT.parent / "shared"))
    if not (folder / "weights").is_dir():
        pytest.skip(f"needs the real weights in {folder} (set SNACS_SHARED to their folder)")
    return folder

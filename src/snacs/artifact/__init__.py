"""A pruned network in one file: safetensors and JSON, no pickle, no code."""

from __future__ import annotations

from snacs.artifact.loading import Info, inspect, load
from snacs.artifact.saving import Saved, save, save_state_dict

__all__ = ["Info", "Saved", "inspect", "load", "save", "save_state_dict"]

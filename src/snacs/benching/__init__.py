"""What pruning brought in time, memory and bytes, measured side by side: :func:`bench`."""

from snacs.benching.measuring import Bench, bench

__all__ = ["Bench", "bench"]

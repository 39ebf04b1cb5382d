"""The same score under four allocations: tempered, uniform, one threshold, SVM curves."""

from __future__ import annotations

from asking import ask

METHODS = (
    "default",
    "default+allocation=uniform",
    "default+allocation=global",
    "default+allocation=svm",
    "l2-uniform",
    "l2-global",
    "l2-tempered",
    "l2-own",
)

if __name__ == "__main__":
    ask("allocation", METHODS)

"""The default against every simple baseline, on the images to report on."""

from __future__ import annotations

from asking import ask

METHODS = (
    "default",
    "default+repair=false",
    "l1-uniform",
    "l1-global",
    "l1-default",
    "l2-uniform",
    "l2-global",
    "l2-default",
    "l2-activation-uniform",
    "l2-activation-global",
    "l2-activation-default",
    "mint-uniform",
    "mint-global",
    "mint-default",
)

if __name__ == "__main__":
    ask("final", METHODS, targets="0.4,0.6,0.7,0.8", seeds=3, half="report")

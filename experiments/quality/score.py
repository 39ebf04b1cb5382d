"""Scores under one allocation, before repair and after it: which choice is best where."""

from __future__ import annotations

import sys

from snacs.cli import main

METHODS = (
    "default",
    "default+repair=false",
    "default+sequential=false",
    "default+score=acmi+sequential=false",
    "l2-default",
    "l1-default",
    "l2-activation-default",
)

if __name__ == "__main__":
    sys.exit(
        main(
            [
                "compare", "resnet56", "--half", "dev", "--methods", ",".join(METHODS),
                "--targets", "0.7", "--run", "runs/quality-score", *sys.argv[1:],
            ]
        )
    )  # fmt: skip

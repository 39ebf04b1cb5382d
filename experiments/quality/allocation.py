"""The same score under three allocations: uniform, one threshold, SVM curves."""

from __future__ import annotations

import sys

from snacs.cli import main

METHODS = (
    "default",
    "default+allocation=global",
    "default+allocation=svm",
    "l2-uniform",
    "l2-global",
    "l2-own",
)

if __name__ == "__main__":
    sys.exit(
        main(
            [
                "compare", "resnet56", "--half", "dev", "--methods", ",".join(METHODS),
                "--targets", "0.7", "--run", "runs/quality-allocation", *sys.argv[1:],
            ]
        )
    )  # fmt: skip

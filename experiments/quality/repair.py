"""What each part of repair is worth, on the default's masks and on magnitudes."""

from __future__ import annotations

import sys

from snacs.cli import main

METHODS = (
    "default",
    "default+refine=false",
    "default+ridge=0.01",
    "default+ridge=0.0001",
    "l2-uniform",
)

if __name__ == "__main__":
    sys.exit(
        main(
            [
                "compare", "resnet56", "--half", "dev", "--methods", ",".join(METHODS),
                "--targets", "0.7", "--run", "runs/quality-repair", *sys.argv[1:],
            ]
        )
    )  # fmt: skip

"""Protection of the filters that the next layer depends on, on top of the default."""

from __future__ import annotations

import sys

from snacs.cli import main

METHODS = (
    "default",
    "default+shares=0.1",
    "default+shares=0.1:0.2:0.3",
)

if __name__ == "__main__":
    sys.exit(
        main(
            [
                "compare", "resnet56", "--half", "dev", "--methods", ",".join(METHODS),
                "--targets", "0.7", "--run", "runs/quality-protection", *sys.argv[1:],
            ]
        )
    )  # fmt: skip

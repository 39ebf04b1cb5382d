"""What is it worth to exchange kernels on many images? The default, before and after repair.

It takes as long as training on these images: a second question is what that buys elsewhere
(``start.py``).
"""

from __future__ import annotations

from asking import ask

METHODS = (
    "default",
    "default+exchange=10000",
    "default+exchange=30000",
    "default+exchange=10000+solved_share=1.0",
    "l2-default",
    "l2-default+exchange=10000",
)

if __name__ == "__main__":
    ask("exchange", METHODS, "--stages", "batchnorm,repaired")

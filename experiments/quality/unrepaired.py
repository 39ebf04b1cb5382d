"""The default without repair against every simple baseline, on the images to report on.

As ``final.py``, but no cell is repaired, so that three seeds take an hour and not a night.
"""

from __future__ import annotations

from asking import ask
from final import METHODS as ALL

METHODS = ("default+repair=false", *(name for name in ALL if not name.startswith("default")))

if __name__ == "__main__":
    more = ("--stages", "batchnorm", "--against", METHODS[0])
    ask("unrepaired", METHODS, *more, targets="0.4,0.6,0.7,0.8", seeds=3, half="report")

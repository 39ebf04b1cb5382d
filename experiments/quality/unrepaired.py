"""The default without repair against every simple baseline, on the images to report on.

As ``final.py``, but no cell is repaired, which is most of the time that it takes.
"""

from __future__ import annotations

from asking import ask
from final import METHODS as ALL

METHODS = ("default+repair=false", *(name for name in ALL if not name.startswith("default")))

if __name__ == "__main__":
    more = ("--stages", "batchnorm", "--against", METHODS[0])
    ask("unrepaired", METHODS, *more, targets="0.4,0.6,0.7,0.8", seeds=3, half="report")

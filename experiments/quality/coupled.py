"""Are both sides of a filter better chosen together? Magnitudes, coupled more and more strongly.

Every layer gives as many kernels as under the default; 0 would be plain magnitudes.
"""

from __future__ import annotations

from asking import ask

METHODS = ("default", "l2-default", "l2-default+coupling=0.5", "l2-default+coupling=1.0")

if __name__ == "__main__":
    ask("coupled", METHODS, "--stages", "repaired", targets="0.6,0.7,0.8")

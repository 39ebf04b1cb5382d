"""Are both sides of a filter better chosen together? Magnitudes, coupled more and more strongly."""

from __future__ import annotations

from asking import ask

METHODS = (
    "default",
    "l2-tempered",
    "default+score=l2+coupling=0.25",
    "default+score=l2+coupling=0.5",
    "default+score=l2+coupling=1.0",
)

if __name__ == "__main__":
    ask("coupled", METHODS, "--stages", "repaired", targets="0.7,0.8")

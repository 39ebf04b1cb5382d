"""Protection of the filters that the next layer depends on, on top of the default."""

from __future__ import annotations

from asking import ask

METHODS = (
    "default",
    "default+shares=0.1",
    "default+shares=0.1:0.2:0.3",
)

if __name__ == "__main__":
    ask("protection", METHODS)

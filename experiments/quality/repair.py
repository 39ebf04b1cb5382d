"""What each part of repair is worth, on the default's masks and on magnitudes."""

from __future__ import annotations

from asking import ask

METHODS = (
    "default",
    "default+refine=false",
    "default+logits=false",
    "default+ridge=0.01",
    "default+ridge=0.0001",
    "l2-uniform",
)

if __name__ == "__main__":
    ask("repair", METHODS)

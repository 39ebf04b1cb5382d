"""Scores under one allocation, before repair and after it: which choice is best where."""

from __future__ import annotations

from asking import ask

METHODS = (
    "default",
    "default+repair=false",
    "default+sequential=false",
    "default+score=acmi+sequential=false",
    "l2-default",
    "l1-default",
    "l2-activation-default",
)

if __name__ == "__main__":
    ask("score", METHODS)

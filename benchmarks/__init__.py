"""Measurements of what the documentation claims about speed; ``python -m benchmarks`` runs all."""

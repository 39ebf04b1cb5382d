"""Made-up evidence of the shapes that the claims are about."""

from __future__ import annotations

import numpy as np

from snacs.experiments.runtime import wide_layer

__all__ = ["class_maps", "wide_layer"]


def class_maps(
    *, images: int, channels: int, side: int, classes: int = 10, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Rectified maps (images, channels, side, side) that carry their class, and the labels."""
    rng = np.random.default_rng(seed)
    labels = np.arange(images) % classes
    centres = 0.5 * rng.normal(size=(classes, channels, 1, 1))
    noise = rng.normal(size=(images, channels, side, side)) + rng.normal(
        size=(images, channels, 1, 1)
    )
    return np.maximum(centres[labels] + noise, 0).astype(np.float32), labels

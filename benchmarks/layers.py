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
    maps = np.empty((images, channels, side, side), np.float32)
    for image in range(images):  # one by one: in double precision all of them might not fit
        noise = rng.normal(size=(channels, side, side)) + rng.normal(size=(channels, 1, 1))
        maps[image] = np.maximum(centres[labels[image]] + noise, 0)
    return maps, labels

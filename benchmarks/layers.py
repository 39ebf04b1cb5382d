"""Made-up evidence of the shapes that the claims are about."""

from __future__ import annotations

import numpy as np

from snacs.values import Evidence, Layer


def wide_layer(
    *, c_out: int = 512, c_in: int = 512, samples: int = 2000, kernel: int = 1, seed: int = 0
) -> Evidence:
    """A layer whose inputs are rectified mixtures of 16 common causes and noise.

    At 4 directions and a width of 2 its cells look like those of VGG16's convolution 9 on 2,000
    CIFAR-10 images (measured there / here): samples per cell 24 / 20, informative samples
    0.96 / 0.93, bins of X 4.5 / 4.6, bins of Y 3.9 / 3.7, segments per parent 114 / 123.
    """
    rng = np.random.default_rng(seed)
    causes = rng.normal(size=(samples, 16))
    mixed = 0.5 * causes @ rng.normal(size=(16, c_in * kernel))
    windows = np.maximum(mixed + rng.normal(size=mixed.shape), 0).astype(np.float32)
    weight = rng.normal(size=(c_out, c_in, kernel)).astype(np.float32)
    weight /= np.float32(np.sqrt(c_in * kernel))
    windows = windows.reshape(samples, c_in, kernel)
    return Evidence(
        layer=Layer("wide", "Conv2d", c_out, c_in, kernel),
        weight=weight,
        bias=None,
        windows=windows,
        inputs=np.ascontiguousarray(windows[:, :, kernel // 2]),
        outputs=windows.reshape(samples, -1) @ weight.reshape(c_out, -1).T,
        window_means=windows,
        input_rms=np.sqrt((windows**2).mean(axis=(0, 2))),
        labels=np.arange(samples) % 10,
    )


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

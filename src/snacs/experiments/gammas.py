"""The limits γ that the paper prints, as limits of the zoo's layers.

The appendix lists one γ per layer for VGG16, ResNet56 and ResNet50, and a table of the 28 that
change on ResNet56 when sensitive filters are protected. The lists do not all read as their captions
say; the readings here are those whose totals agree with the paper's results, where one does.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from torch import nn

from snacs.errors import InputError
from snacs.values import BoolArray
from snacs.zoo.networks import NETWORKS

VGG16 = (
    *(0, 0, 0.8599, 0.9799, 0.9799, 0.9799, 0.9799, 0.9799, 0.9799),
    *(0.9699, 0.9499, 0.8399, 0.9099, 0),
)
"""From the first convolution to the classifier, as printed: 93.63 %, not the paper's 96.16 %."""

RESNET56 = (
    *(0,) * 26,
    *(0.699, 0.4794, 0.1591, 0.539, 0.3691, 0.9794, 0.089, 0.7392, 0.2695, 0.7294, 0.8896),
    *(0.8398, 0.6699, 0.9699, 0.8698, 0.899, 0.2399, 0.9499, 0.3498, 0.899, 0.7199, 0.8898),
    *(0.9199, 0.9599, 0.9699, 0.9799, 0.9799, 0.9799, 0),
)
"""Convolutions 2 to 55 and the classifier: the printed list leaves the first convolution out."""

RESNET56_SENSITIVITY = (
    *(0,) * 26,
    *(0.699, 0.4394, 0.5507, 0.7041, 0.5117, 0.1796, 0.3183, 0.6611, 0.4287, 0.8261, 0.7739),
    *(0.8198, 0.799, 0.9299, 0.7927, 0.8999, 0.2299, 0.8957, 0.5817, 0.8898, 0.7099, 0.8759),
    *(0.8813, 0.9599, 0.9699, 0.9699, 0.9799, 0.9799, 0),
)
"""The same with sensitive filters protected: entries 27 to 54 from the comparison table."""

RESNET50_PERCENT = (
    *(0.0,) * 12,
    *(75.99, 65.99, 67.99, 96.99, 52.99, 82.99, 66.99, 78.99, 78.99, 51.99, 16.99, 67.99, 63.99),
    *(76.99, 87.99, 66.00, 87.99, 92.99, 82.99, 73.99, 69.99, 93.99, 52.99, 95.99, 60.99, 78.99),
    *(84.99, 57.00, 84.99, 80.99, 85.99, 34.99, 68.99, 94.00, 80.00, 87.00, 70.99, 79.99, 91.99),
    *(98.00, 0.0, 0.0),
)
"""First convolution; each block's 1, 2, 3, downsample; classifier: the paper's 68.80 % row."""


def paper_limits(network_name: str, *, sensitivity: bool = False) -> dict[str, float]:
    """Return the paper's γ for each Conv and Linear layer of a network of the zoo, in order.

    Parameters
    ----------
    network_name : "vgg16", "resnet56" or "resnet50"
    sensitivity : bool
        The limits found with sensitive filters protected; printed for ResNet56 only.

    Returns
    -------
    dict
        Layer name to the fraction of the layer's connections that goes.

    Examples
    --------
    >>> limits = paper_limits("resnet56")
    >>> limits["conv1"], limits["layer3.8.conv2"], len(limits)
    (0.0, 0.9799, 56)
    """
    if sensitivity and network_name != "resnet56":
        raise InputError(
            "The paper prints limits with sensitivity for resnet56 only. "
            f"Got {network_name!r}; leave sensitivity out."
        )
    printed: dict[str, tuple[float, ...]] = {
        "vgg16": VGG16,
        "resnet56": (0.0, *(RESNET56_SENSITIVITY if sensitivity else RESNET56)),
        "resnet50": tuple(percent / 100 for percent in RESNET50_PERCENT),
    }
    if network_name not in printed:
        raise InputError(
            f"The paper prints limits for {', '.join(sorted(printed))}. Got {network_name!r}."
        )
    names = [
        name
        for name, module in NETWORKS[network_name].build().named_modules()
        if isinstance(module, nn.Conv2d | nn.Linear)
    ]
    return {name: float(limit) for name, limit in zip(names, printed[network_name], strict=True)}


def largest_kernels(model: nn.Module, limits: Mapping[str, float]) -> dict[str, BoolArray]:
    """Masks (c_out, c_in) that keep the kernels of largest L2 norm, at a limit per layer.

    For measuring time, which does not depend on which kernels stay.
    """
    masks = {}
    for name, limit in limits.items():
        weight = model.get_submodule(name).weight.detach().numpy()  # type: ignore[operator]
        scores = np.sqrt((weight.reshape(*weight.shape[:2], -1) ** 2).sum(axis=2))
        keep = np.ones(scores.size, bool)
        keep[np.argsort(scores, axis=None, kind="stable")[: int(limit * scores.size)]] = False
        masks[name] = keep.reshape(scores.shape)
    return masks

"""Small made-up evidence whose outputs really are weight · windows + bias."""

from __future__ import annotations

from typing import Any

import numpy as np

from snacs.values import Evidence, Layer


def make_evidence(
    *,
    c_out: int = 4,
    c_in: int = 3,
    kernel: int = 2,
    groups: int = 1,
    samples: int = 60,
    seed: int = 0,
    **changes: Any,
) -> Evidence:
    """Evidence of a random layer; ``changes`` replace whole arrays (outputs follow weights)."""
    rng = np.random.default_rng(seed)
    layer = Layer("body.conv", "Conv2d", c_out, c_in, kernel, groups=groups, has_bias=True)
    arrays: dict[str, Any] = {
        "weight": rng.normal(size=(c_out, c_in, kernel)) * rng.uniform(0.1, 1, (c_out, c_in, 1)),
        "bias": rng.normal(size=c_out),
        "windows": np.maximum(rng.normal(size=(samples, layer.channels, kernel)), -0.5),
    }
    arrays |= {key: changes[key] for key in arrays if key in changes}
    arrays = {key: np.asarray(value, dtype=np.float32) for key, value in arrays.items()}
    reads = arrays["windows"][:, layer.channel_of()]
    arrays["outputs"] = np.einsum("oik,noik->no", arrays["weight"], reads) + arrays["bias"]
    arrays["inputs"] = arrays["windows"][:, :, kernel // 2]
    arrays["window_means"] = arrays["windows"]
    arrays["input_rms"] = np.sqrt((arrays["windows"] ** 2).mean(axis=(0, 2)))
    arrays |= {key: changes[key] for key in changes if key != "layer"}
    arrays = {key: np.asarray(value, dtype=np.float32) for key, value in arrays.items()}
    return Evidence(layer=layer, labels=np.zeros(samples, dtype=np.int64), **arrays)

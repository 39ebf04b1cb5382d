"""What a network says about every single test image, so that two networks can be paired.

Methods are measured on the same images. The error of their difference is that of the differences
image by image, which is smaller than two separate errors would suggest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from snacs.errors import InputError
from snacs.files import write_json
from snacs.network.batches import evaluating, labels_of, logits_of, move, run, size_of
from snacs.values import BoolArray, FloatArray


class Estimate(NamedTuple):
    """A mean over images and its standard error."""

    mean: float
    error: float


@dataclass(frozen=True, eq=False)
class Measured:
    """One network on n test images.

    Attributes
    ----------
    right : (n,) whether the highest of all outputs is the label.
    among : (n,) the same, counting only the outputs of classes that occur in the data.
    divergence : (n,) KL(dense ‖ this) in nats; infinite where the outputs are not finite.
    """

    right: BoolArray
    among: BoolArray
    divergence: FloatArray

    def write_into(self, folder: Path) -> None:
        np.savez(
            folder / "images.npz", allow_pickle=False,
            right=self.right, among=self.among, divergence=self.divergence,
        )  # fmt: skip
        write_json(folder / "measured.json", self.facts())

    @staticmethod
    def read(folder: Path) -> Measured:
        with np.load(folder / "images.npz", allow_pickle=False) as arrays:
            return Measured(arrays["right"], arrays["among"], arrays["divergence"])

    def facts(self) -> dict[str, Any]:
        """Means and standard errors as plain JSON."""
        right, among = estimate(self.right), estimate(self.among)
        kl = estimate(self.divergence)
        return {
            "n": len(self.right),
            "accuracy": right.mean,
            "error": right.error,
            "among": among.mean,
            "among_error": among.error,
            "divergence": kl.mean if np.isfinite(kl.mean) else None,
            "divergence_error": kl.error if np.isfinite(kl.error) else None,
        }


def estimate(values: Any) -> Estimate:
    """Mean over images, and standard deviation / √n: of right answers this is √(p(1 − p)/n).

    >>> estimate([1, 1, 1, 0])
    Estimate(mean=0.75, error=0.21650635094610965)
    """
    found = np.asarray(values, dtype=np.float64)
    if not np.isfinite(found).all():
        return Estimate(float("inf"), float("inf"))
    return Estimate(float(found.mean()), float(found.std() / np.sqrt(len(found))))


def paired(ours: Sequence[Any], theirs: Sequence[Any]) -> Estimate:
    """Mean difference of two networks over the same images, with its paired standard error.

    Each side is a list over seeds of (n,) arrays; seeds are averaged image by image first.

    >>> paired([[1, 1, 1, 0]], [[1, 0, 1, 0]])
    Estimate(mean=0.25, error=0.21650635094610965)
    """
    sides = [np.mean(np.asarray(side, dtype=np.float64), axis=0) for side in (ours, theirs)]
    if sides[0].shape != sides[1].shape:
        raise InputError(
            f"Only measurements of the same images can be paired. Got {len(sides[0])} and "
            f"{len(sides[1])} images."
        )
    return estimate(sides[0] - sides[1])


def outputs_of(
    model: nn.Module,
    images: Iterable[Any],
    *,
    progress: Callable[[int], None] | None = None,
) -> tuple[FloatArray, FloatArray]:
    """All class scores (n, classes), float32, and labels (n,)."""
    logits, labels, done = [], [], 0
    with evaluating(model):
        for batch in images:
            logits.append(logits_of(run(model, move(batch, model))).float().cpu())
            found = labels_of(batch)
            if found is None:
                raise InputError("Measuring accuracy needs labels: batches of (images, labels).")
            labels.append(found)
            done += size_of(batch)
            if progress is not None:
                progress(done)
    if not logits:
        raise InputError("There are no images to measure accuracy on.")
    return torch.cat(logits).numpy(), torch.cat(labels).numpy()


def measured(
    logits: FloatArray, labels: Any, dense: FloatArray, classes: Sequence[int]
) -> Measured:
    """Compare outputs with the labels and with the dense network's outputs."""
    known = np.asarray(classes)
    theirs, ours = torch.from_numpy(dense).double(), torch.from_numpy(logits).double()
    log_dense, log_ours = functional.log_softmax(theirs, 1), functional.log_softmax(ours, 1)
    kl = (log_dense.exp() * (log_dense - log_ours)).sum(1).numpy()
    return Measured(
        right=logits.argmax(1) == labels,
        among=known[logits[:, known].argmax(1)] == labels,
        divergence=np.where(np.isfinite(kl), kl, np.inf),
    )

"""The loss of a recipe: cross-entropy, smoothed or shared with a teacher."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from snacs.errors import InputError
from snacs.network.batches import labels_of
from snacs.training.recipes import Recipe


def loss_of(logits: Tensor, labels: Tensor, recipe: Recipe, teacher: Tensor | None) -> Tensor:
    """(1 − d)·CE(labels) + d·T²·KL(teacher/T ‖ student/T), mean over images.

    T² keeps the size of the gradients independent of the temperature T (Hinton et al. 2015). Half
    precision is not enough for a loss.
    """
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    loss = functional.cross_entropy(logits, labels, label_smoothing=recipe.label_smoothing)
    if teacher is None or recipe.distillation == 0:
        return loss
    heat = recipe.temperature
    soft = functional.kl_div(
        functional.log_softmax(logits / heat, dim=1),
        functional.log_softmax(teacher / heat, dim=1),
        reduction="batchmean",
        log_target=True,
    )
    return (1 - recipe.distillation) * loss + recipe.distillation * heat**2 * soft


def labels_for(batch: Any, logits: Tensor) -> Tensor:
    """The labels of a batch, checked against the outputs that they belong to."""
    labels = labels_of(batch)
    if labels is None:
        raise InputError(
            "Training and measuring accuracy need labels: batches of (images, labels)."
        )
    if len(labels) and int(labels.max()) >= logits.shape[1]:
        raise InputError(
            f"Label {int(labels.max())} is out of range: the network has {logits.shape[1]} classes."
        )
    return labels.to(logits.device)

"""The loss of a recipe: cross-entropy, smoothed or shared with a teacher."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional

from snacs.training.recipes import Recipe


def loss_of(logits: Tensor, labels: Tensor, recipe: Recipe, teacher: Tensor | None) -> Tensor:
    """(1 − d)·CE(labels) + d·T²·KL(teacher/T ‖ student/T), mean over images.

    T² keeps the size of the gradients independent of the temperature T (Hinton et al. 2015).
    """
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

"""Losses against torch's and against the formula."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from snacs.training.losses import loss_of
from snacs.training.recipes import Recipe


@pytest.fixture
def logits():
    return torch.randn(7, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


LABELS = torch.tensor([0, 1, 2, 3, 0, 1, 2])


def test_label_smoothing_is_a_mixture_with_the_uniform_distribution(logits):
    recipe = Recipe(epochs=1, learning_rate=0.1, label_smoothing=0.3)
    found = loss_of(logits, LABELS, recipe, None)
    target = 0.7 * functional.one_hot(LABELS, 4) + 0.3 / 4
    by_hand = -(target * functional.log_softmax(logits, 1)).sum(1).mean()
    assert torch.allclose(found, by_hand)
    assert torch.equal(found, functional.cross_entropy(logits, LABELS, label_smoothing=0.3))


def test_distillation_by_the_formula(logits):
    recipe = Recipe(epochs=1, learning_rate=0.1, distillation=0.25, temperature=3.0)
    teacher = logits.flip(0)
    p, q = torch.softmax(teacher / 3, 1), torch.softmax(logits / 3, 1)
    soft = (p * (p / q).log()).sum(1).mean()
    expected = 0.75 * functional.cross_entropy(logits, LABELS) + 0.25 * 9 * soft
    assert torch.allclose(loss_of(logits, LABELS, recipe, teacher), expected)


def test_a_perfect_student_has_no_soft_loss(logits):
    recipe = Recipe(epochs=1, learning_rate=0.1, distillation=1.0)
    assert float(loss_of(logits, LABELS, recipe, logits.clone())) == pytest.approx(0.0, abs=1e-12)

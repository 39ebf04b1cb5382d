"""The γ lists of the paper give the totals that the paper reports, read as documented."""

from __future__ import annotations

import pytest
from torch import nn

from snacs.errors import InputError
from snacs.experiments.gammas import paper_limits
from snacs.zoo.networks import NETWORKS


def weights(name: str) -> dict[str, int]:
    return {
        each: module.weight.numel()
        for each, module in NETWORKS[name].build().named_modules()
        if isinstance(module, nn.Conv2d | nn.Linear)
    }


@pytest.mark.parametrize(
    ("name", "sensitivity", "percent"),
    [
        ("resnet56", False, 68.58),
        ("resnet56", True, 68.96),
        ("resnet50", False, 68.80),
        ("vgg16", False, 93.63),
    ],
)
def test_the_lists_give_the_totals(name: str, sensitivity: bool, percent: float) -> None:
    limits = paper_limits(name, sensitivity=sensitivity)
    sizes = weights(name)
    assert list(limits) == list(sizes)
    gone = sum(limits[each] * size for each, size in sizes.items())
    # Two decimals are printed; 0.05 also allows for the rounding of single limits.
    assert 100 * gone / sum(sizes.values()) == pytest.approx(percent, abs=0.05)
    assert all(0 <= limit < 1 for limit in limits.values())


def test_first_layer_and_classifier_stay_whole() -> None:
    for name in ("resnet56", "resnet50", "vgg16"):
        limits = list(paper_limits(name).values())
        assert limits[0] == limits[-1] == 0


def test_unknown_lists_are_errors() -> None:
    with pytest.raises(InputError, match="vgg16"):
        paper_limits("small-conv")
    with pytest.raises(InputError, match="resnet56 only"):
        paper_limits("vgg16", sensitivity=True)

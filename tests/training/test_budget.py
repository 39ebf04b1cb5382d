"""Schedules that fit the time at hand."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
import torch

from snacs.errors import InputError
from snacs.training import RECIPES, scaled
from snacs.training.budget import RESERVE, STEPS, fit, pace
from snacs.zoo.networks import SmallConvNet


def test_the_pace_is_measured_on_a_copy():
    model = SmallConvNet()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    state = torch.random.get_rng_state()
    batches = [(torch.rand(20, 1, 8, 8), torch.arange(20) % 10)] * 3
    drawn = torch.random.get_rng_state()
    found = pace(model, batches, RECIPES["scratch"])
    assert 0 < found < 1
    assert torch.equal(drawn, torch.random.get_rng_state())
    assert not torch.equal(state, drawn)
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[name])
    with pytest.raises(InputError, match="too few"):
        pace(model, batches[:1], RECIPES["scratch"])


@pytest.mark.parametrize("channels_last", [False, True])
def test_the_pace_counts_what_reading_takes(channels_last):
    def read():
        for _ in range(4):
            time.sleep(0.02)
            yield torch.rand(20, 1, 8, 8), torch.arange(20) % 10

    recipe = replace(RECIPES["scratch"], channels_last=channels_last)
    assert pace(SmallConvNet(), read(), recipe) >= 0.001  # 0.02 s for 20 images, and a step


@pytest.mark.parametrize(
    ("seconds", "passes"), [(1e9, 300), (30_000, 27), (1000, 0.9), (10, 0.009)]
)
def test_a_schedule_is_squeezed_into_its_time_and_keeps_its_shape(seconds, passes):
    recipe = RECIPES["train-vgg16"]
    found, parts = fit(recipe, seconds=seconds, images=50_000, pace=0.02)
    assert found.epochs / parts == pytest.approx(passes, rel=0.15, abs=1 / parts)
    assert found.epochs / parts * 50_000 * 0.02 <= max(RESERVE * seconds, 50_000 / parts * 0.02)
    if 50_000 / parts > recipe.batch:
        assert found.epochs >= STEPS or parts == 50_000 // recipe.batch
    shares = [milestone / found.epochs for milestone in found.milestones]
    assert shares == pytest.approx([90 / 300, 180 / 300, 260 / 300])
    assert (found.warmup > 0) == (parts > 1)
    middle = (found.epochs * 0.5, recipe.epochs * 0.5)
    assert found.rate(middle[0]) == pytest.approx(recipe.rate(middle[1]))


def test_scaling_refuses_no_epochs():
    with pytest.raises(InputError, match="epochs"):
        scaled(RECIPES["short"], 0)

"""Planes of pixels without zeros between their rows: every width, height and neighbour."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from snacs.runtime import fields as f
from snacs.runtime.layout import Geometry, wraps_well
from snacs.runtime.lowering import lower, trace
from snacs.runtime.program import build
from snacs.runtime.running import Runner
from snacs.runtime.tables import wrapped_tiles
from snacs.runtime.vectors import LANES

CLOSE = 1e-5


class Residual(nn.Module):
    """3×3 layers, plain and grouped, a 1×1 layer, and a sum."""

    def __init__(self, channels: int = 6) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1)
        self.point = nn.Conv2d(channels, channels, 1)
        self.grouped = nn.Conv2d(channels, channels, 3, padding=1, groups=2, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.grouped(torch.relu(self.point(self.first(x)))) + x)


def runner(model: nn.Module, x: Tensor, *, threads: int = 1, sharing: int = 1) -> Runner:
    module = trace(model)
    lowered = lower(module, x[:1])
    program = build(lowered, images=False, threads=sharing)
    return Runner(module, lowered, program, images=len(x), threads=threads)


def pruned(model: nn.Module) -> nn.Module:
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, nn.Conv2d):
                weight = module.weight
                weight[torch.rand(weight.shape[:2], generator=generator) < 0.5] = 0
    return model.eval()


def variants(run: Runner) -> set[int]:
    ops = run.program.ops
    return {int(op[f.VARIANT]) for op in ops if op[f.KIND] == f.CONV}


@pytest.mark.parametrize("width", [2, 4, 8, 16, 32, 48, 12])
@pytest.mark.parametrize("height", [1, 2, 3, 4, 5, 8, 9])
def test_every_size_equals_torch(height, width):
    torch.manual_seed(height * 100 + width)
    model, x = pruned(Residual()), torch.randn(2, 6, height, width)
    run = runner(model, x)
    with torch.no_grad():
        expected = model(x)
        gap = float((run(x) - expected).abs().max() / expected.abs().max())
    assert gap < CLOSE
    assert any(variant > 1000 for variant in variants(run)) == wraps_well(height, width)


@pytest.mark.parametrize("width", [4, 8, 16, 32])
def test_a_nan_at_the_end_of_a_row_does_not_reach_the_next(width):
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Conv2d(1, 2, 3, padding=1)).eval(), torch.randn(1, 1, 8, width)
    x[0, 0, 2, -1] = torch.nan
    x[0, 0, 5, 0] = torch.nan
    with torch.no_grad():
        assert torch.equal(runner(model, x)(x).isnan(), model(x).isnan())


def test_a_layer_that_reaches_further_keeps_its_zeros():
    layers = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 3, 5, padding=2)
    model, x = pruned(nn.Sequential(*layers)), torch.randn(1, 3, 16, 16)
    run = runner(model, x)
    with torch.no_grad():
        assert torch.allclose(run(x), model(x), atol=1e-5)
    assert all(variant < 1000 for variant in variants(run))


def test_layers_without_padding_read_such_planes():
    torch.manual_seed(0)
    layers = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 3, 3)
    model, x = pruned(nn.Sequential(*layers)), torch.randn(2, 3, 16, 16)
    run = runner(model, x)
    with torch.no_grad():
        assert torch.allclose(run(x), model(x), atol=1e-5)
    assert any(variant > 1000 for variant in variants(run))


@pytest.mark.parametrize("side", [4, 8, 16])
def test_dividing_filters_changes_no_bit(side):
    torch.manual_seed(0)
    model, x = pruned(Residual(24)), torch.randn(3, 24, side, side)
    results = [
        runner(model, x, threads=threads, sharing=sharing)(x)
        for threads, sharing in ((1, 1), (1, 2), (2, 2), (3, 4))
    ]
    with torch.no_grad():
        assert torch.allclose(results[0], model(x), atol=1e-4)
    assert all(torch.equal(results[0], other) for other in results[1:])


@pytest.mark.parametrize(("height", "width"), [(8, 8), (9, 16), (5, 64), (7, 4), (16, 32)])
@pytest.mark.parametrize("vectors", [1, 2, 4])
def test_tiles_cover_every_pixel_once(height, width, vectors):
    plane = Geometry.wrapped(height, width, 1)
    vectors = min(vectors, -(-height // max(1, LANES // width)))  # as many as there are
    tiles, edges = wrapped_tiles(plane, plane, vectors=vectors)
    seen = np.zeros(plane.plane + LANES, int)
    for start, mask in zip(tiles.out, tiles.masks, strict=True):
        for lane in range(LANES):
            seen[start + lane] += mask >> lane & 1
    inside = np.zeros_like(seen)
    inside[plane.origin : plane.origin + height * width] = 1
    assert np.array_equal(seen, inside)
    assert edges.shape == (tiles.count, 2)

"""Compiled networks give the numbers that torch gives, in both layouts, with any threads."""

from __future__ import annotations

import os
import platform
import tracemalloc

import numba
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import snacs
from snacs.errors import InputError, ModelError
from snacs.runtime.compiled import compile as compile_network
from snacs.runtime.lowering import lower, trace
from snacs.runtime.program import build
from snacs.runtime.running import Runner
from snacs.runtime.vectors import WIDE, make_taps
from snacs.zoo.networks import NETWORKS

# Sums of float32 in another order: some hundred terms, 1e-7 each.
CLOSE = 1e-5


def pruned(model: nn.Module, *, seed: int = 0, gone: float = 0.6) -> nn.Module:
    """Random kernels set to zero, and BatchNorm statistics that are not 0 and 1."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, nn.Conv2d | nn.Linear):
                weight = module.weight
                weight[torch.rand(weight.shape[:2], generator=generator) < gone] = 0
            if isinstance(module, nn.BatchNorm2d):
                size = module.num_features
                module.running_mean = torch.randn(size, generator=generator)
                module.running_var = torch.rand(size, generator=generator) + 0.5
                module.weight.copy_(torch.randn(size, generator=generator))
                module.bias.copy_(torch.randn(size, generator=generator))
    return model.eval()


def runner(model: nn.Module, x: Tensor, *, images: bool, threads: int = 1) -> Runner:
    module = trace(model)
    lowered = lower(module, x[:1])
    program = build(lowered, images=images)
    return Runner(module, lowered, program, images=len(x), threads=threads)


def difference(found: Tensor, expected: Tensor) -> float:
    assert found.shape == expected.shape
    return float((found - expected).abs().max() / expected.abs().max().clamp(min=1e-9))


@pytest.mark.parametrize("images", [False, True])
@pytest.mark.parametrize(
    ("kernel", "stride", "padding", "dilation", "groups"),
    [
        (1, 1, 0, 1, 1),
        (1, 1, 0, 1, 2),
        (1, 2, 0, 1, 1),
        (1, 2, 1, 1, 1),
        (2, 1, 1, 1, 1),
        (2, 2, 0, 1, 6),
        (3, 1, 1, 1, 1),
        (3, 1, 1, 1, 6),
        (3, 1, 0, 1, 1),
        (3, 1, 2, 2, 2),
        (3, 2, 1, 1, 1),
        (3, 2, 0, 2, 1),
        (3, (2, 1), (0, 1), 1, 1),
        (3, 3, 2, 1, 1),
        ((1, 3), 1, (0, 1), 1, 1),
        ((5, 2), (1, 2), (2, 1), (1, 3), 1),
        (5, 1, 2, 1, 1),
        (5, 2, 2, 1, 2),
        (7, 1, 3, 1, 1),
        (7, 2, 3, 1, 1),
        (9, 1, 0, 1, 1),
    ],
)
def test_every_convolution_equals_torch(images, kernel, stride, padding, dilation, groups):
    torch.manual_seed(0)
    model = nn.Conv2d(
        6, 12, kernel, stride=stride, padding=padding, dilation=dilation, groups=groups
    )
    model = pruned(nn.Sequential(model, nn.ReLU()))
    x = torch.randn(3, 6, 9, 12)
    with torch.no_grad():
        assert difference(runner(model, x, images=images)(x), model(x)) < CLOSE


@pytest.mark.parametrize("images", [False, True])
@pytest.mark.parametrize("channels", [8, 80])
@pytest.mark.parametrize("side", [1, 2, 4, 8, 16, 33])
def test_sizes_and_widths(images, channels, side):
    """Dense enough for two vectors at once, and sizes below and above a vector."""
    torch.manual_seed(1)
    model = pruned(nn.Sequential(nn.Conv2d(channels, 9, 3, padding=1), nn.ReLU()), gone=0.3)
    x = torch.randn(2, channels, side, side)
    with torch.no_grad():
        assert difference(runner(model, x, images=images)(x), model(x)) < CLOSE


@pytest.mark.parametrize("images", [False, True])
@pytest.mark.parametrize(
    "pool",
    [
        nn.MaxPool2d(2),
        nn.MaxPool2d(3, 2, 1),
        nn.MaxPool2d((2, 3), (1, 2), (1, 1)),
        nn.AvgPool2d(2),
        nn.AvgPool2d(3, 2, 1),
        nn.AvgPool2d(3, 2, 1, count_include_pad=False),
        nn.AdaptiveAvgPool2d(1),
    ],
    ids=str,
)
def test_pooling_equals_torch(images, pool):
    model = nn.Sequential(nn.Conv2d(2, 3, 1), pool).eval()
    x = torch.randn(2, 2, 7, 10)
    with torch.no_grad():
        assert difference(runner(model, x, images=images)(x), model(x)) < CLOSE


class SqueezeExcite(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.down, self.up = nn.Conv2d(8, 4, 1), nn.Conv2d(4, 8, 1)
        self.fc = nn.Linear(8 * 6 * 6, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.norm(self.conv(x)))
        gate = torch.sigmoid(self.up(F.relu(self.down(F.adaptive_avg_pool2d(x, 1)))))
        x = x * gate
        return self.fc(x.view(x.size(0), -1))


class DenseLike(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.norms = nn.ModuleList([nn.BatchNorm2d(8), nn.BatchNorm2d(12)])
        self.convs = nn.ModuleList(
            [nn.Conv2d(8, 4, 3, padding=1), nn.Conv2d(12, 4, (1, 3), padding=(0, 1))]
        )
        self.fc = nn.Linear(16, 7)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for norm, conv in zip(self.norms, self.convs, strict=True):
            x = torch.cat([x, conv(torch.relu(norm(x)))], dim=1)
        return self.fc(torch.flatten(F.max_pool2d(x, 6), 1))


class InPlace(nn.Module):
    """A ReLU in place changes what the shortcut reads."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.conv = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        inner = self.conv(self.relu(x))
        x = x + inner
        x += inner
        return x.mean((2, 3))


class TwoBranches(nn.Module):
    """The projection comes after the branch that it is added to; both outputs are returned."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(3, 6, 3, stride=2, padding=1), nn.Conv2d(3, 6, 1, stride=2)
        self.na, self.nb = nn.BatchNorm2d(6), nn.BatchNorm2d(6)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        inner = self.na(self.a(x))
        total = F.relu(inner + self.nb(self.b(x)))
        return {"total": total, "double": total + total, "input": x}


LENET = (
    *(nn.Conv2d(3, 6, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 3, padding="same")),
    *(nn.Hardtanh(), nn.Flatten(), nn.Linear(16, 12), nn.ReLU6(), nn.Dropout(), nn.Linear(12, 4)),
)
RENAMED = (nn.Flatten(), nn.LayerNorm(108), nn.Dropout(), nn.GELU(), nn.Identity(), nn.Tanh())
"""New names and shapes for the input and for what torch makes, read by torch again."""
ODD = (
    *(nn.Conv2d(3, 8, 3, padding="same"), nn.GELU()),
    *(nn.Conv2d(8, 8, 3, padding=1, padding_mode="reflect"), nn.ConvTranspose2d(8, 3, 2)),
)


@pytest.mark.parametrize(
    "model",
    [
        *(SqueezeExcite(), DenseLike(), InPlace(), nn.Sequential(*LENET), nn.Sequential(*ODD)),
        *(nn.Sequential(*RENAMED), nn.Sequential(nn.Flatten()), nn.Sequential(nn.Identity())),
    ],
    ids=["squeeze-excite", "dense", "in place", "lenet", "odd", "renamed", "flatten", "nothing"],
)
def test_networks_equal_torch_at_every_batch_size(model):
    torch.manual_seed(0)
    model = pruned(model)
    fast = compile_network(model, torch.randn(2, 3, 6, 6))
    with torch.no_grad():
        for images in (1, 2, 17, 33):
            x = torch.randn(images, 3, 6, 6)
            assert difference(fast(x), model(x)) < CLOSE


def test_what_torch_runs_is_listed_with_the_reason():
    fast = compile_network(nn.Sequential(*ODD).eval(), torch.randn(2, 3, 6, 6))
    reasons = " ".join(fast.in_torch.values())
    assert len(fast.in_torch) == 3
    assert "GELU" in reasons
    assert "reflect" in reasons
    assert "ConvTranspose2d" in reasons
    nothing = compile_network(NETWORKS["small-resnet"].build(), torch.randn(2, 1, 8, 8))
    assert nothing.in_torch == {}


def test_outputs_may_be_nested():
    model = pruned(TwoBranches())
    x = torch.randn(3, 3, 8, 8)
    fast = compile_network(model, x)
    with torch.no_grad():
        expected, found = model(x), fast(x)
    assert found.keys() == expected.keys()
    assert all(difference(found[key], expected[key]) < CLOSE for key in expected)


@pytest.mark.parametrize("images", [False, True])
def test_results_do_not_depend_on_threads(images):
    model = pruned(NETWORKS["small-resnet"].build())
    x = torch.randn(35, 1, 8, 8)
    with torch.no_grad():
        results = [runner(model, x, images=images, threads=n)(x) for n in (1, 2, 3)]
        assert difference(results[0], model(x)) < CLOSE
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])


def test_masked_baked_and_compacted_networks():
    torch.manual_seed(0)
    model = NETWORKS["small-resnet"].build().eval()
    x = torch.randn(4, 1, 8, 8)
    images = [(torch.randn(60, 1, 8, 8), torch.arange(60) % 10)]
    plan = snacs.plan(model, images, target=0.6, score="l2", allocation="uniform")
    snacs.apply_(model, plan)
    with torch.no_grad():
        expected = model(x)
        masked = compile_network(model, x)
        assert difference(masked(x), expected) < CLOSE
        assert any("parametrizations" in key for key in model.state_dict())
        rows = {row.name: row for row in masked.layers}
        assert rows["layer2.0.conv2"].macs_kept < 0.5 * rows["layer2.0.conv2"].macs
        snacs.bake_(model)
        assert difference(compile_network(model, x)(x), expected) < CLOSE
        small = snacs.compact(model, x)
        assert difference(compile_network(small, x)(x), expected) < CLOSE


def test_a_padded_shortcut_needs_no_torch():
    model = pruned(NETWORKS["resnet56"].build(), gone=0.8)
    x = torch.randn(2, 3, 32, 32)
    fast = compile_network(model, x)
    assert fast.in_torch == {}
    assert len(fast.layers) == 56
    assert {row.runs for row in fast.layers} <= {"sparse", "dense"}
    assert all(row.pixels > 0 and row.images > 0 and row.dense > 0 for row in fast.layers)


def test_layers_left_to_torch_give_the_same():
    model = pruned(NETWORKS["small-resnet"].build())
    x = torch.randn(5, 1, 8, 8)
    module = trace(model)
    lowered = lower(module, x[:1], dense=frozenset({"layer2.0.conv1", "layer1.0.conv2"}))
    program = build(lowered, images=True)
    run = Runner(module, lowered, program, images=5, threads=2)
    with torch.no_grad():
        assert difference(run(x), model(x)) < CLOSE
    assert len(program.ranges) == 3


def test_outputs_belong_to_the_caller_and_repeat_bit_for_bit():
    model = pruned(NETWORKS["small-conv"].build())
    x = torch.randn(3, 1, 8, 8)
    fast = compile_network(model, x)
    first = fast(x)
    kept = first.clone()
    fast(torch.randn(3, 1, 8, 8))
    assert torch.equal(first, kept)
    assert torch.equal(fast(x), kept)


def test_the_steady_state_takes_no_memory():
    model = pruned(NETWORKS["small-resnet"].build())
    x = torch.randn(16, 1, 8, 8)
    fast = compile_network(model, x)
    before = fast.bytes
    for _ in range(3):
        fast(x)
    tracemalloc.start()
    try:
        start = tracemalloc.get_traced_memory()[0]
        for _ in range(50):
            fast(x)
        grown = tracemalloc.get_traced_memory()[0] - start
    finally:
        tracemalloc.stop()
    assert fast.bytes == before
    # Python objects of a call come and go; buffers are hundreds of kilobytes, fifty times over.
    assert grown < 100_000


def test_a_nan_stays_visible():
    model = nn.Sequential(nn.Conv2d(1, 2, 3, padding=1), nn.ReLU()).eval()
    x = torch.ones(1, 1, 4, 4)
    fast = compile_network(model, x)
    x[0, 0, 1, 1] = torch.nan
    with torch.no_grad():
        assert torch.equal(fast(x).isnan(), model(x).isnan())


class Branching(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x if x.sum() > 0 else -x


def test_errors_say_what_to_do():
    x = torch.randn(2, 3, 6, 6)
    with pytest.raises(ModelError, match=r"cannot trace its forward"):
        compile_network(Branching(), x)
    with pytest.raises(InputError, match="float32 networks"):
        compile_network(nn.Conv2d(3, 2, 1).double(), x.double())
    with pytest.raises(InputError, match="compile takes networks of images"):
        compile_network(nn.Conv1d(3, 2, 1), torch.randn(2, 3, 6))
    fast = compile_network(nn.Conv2d(3, 2, 1), x)
    with pytest.raises(InputError, match=r"images of shape \(3, 6, 6\)"):
        fast(torch.randn(2, 3, 7, 7))
    with pytest.raises(InputError, match="float32 tensor"):
        fast(x.double())
    assert "sparse kernels" in repr(fast)


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="x86 instructions")
def test_the_kernels_multiply_and_add_whole_vectors():
    taps = make_taps(1, 9)

    @numba.njit
    def probe(arena, ints, sums, rows, weights):
        taps(arena, 0, ints, 0, 1, sums, rows, weights, 0, 4)

    floats, ints = np.zeros(64, np.float32), np.zeros(16, np.int64)
    probe(floats, ints, floats, np.zeros(4, np.int32), floats)
    code = "".join(probe.inspect_asm().values())
    register = "zmm" if WIDE else "ymm"
    assert any("vfmadd" in line and register in line for line in code.splitlines())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_can_go_on():
    model = pruned(NETWORKS["small-conv"].build())
    x = torch.randn(16, 1, 8, 8)
    run = runner(model, x, images=True, threads=2)
    with torch.no_grad():
        expected = run(x)
    child = os.fork()
    if child == 0:
        same = False
        try:
            same = bool((run(x).numpy() == expected.numpy()).all())
        finally:
            os._exit(0 if same else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

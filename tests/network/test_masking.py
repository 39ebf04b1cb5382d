"""Masks hold through everything torch does to a model, and come off without a trace."""

from __future__ import annotations

import copy
import io
import os

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import parametrize

from snacs.errors import InputError
from snacs.network import masking
from snacs.values import Layer, Norm, Segment, Structure


class Net(nn.Module):
    """conv1 → bn1 → relu → conv2 (bias) → bn2 → flatten → fc; 4 and 3 filters on 4×4 images."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv1 = nn.Conv2d(2, 4, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(4)
        self.conv2 = nn.Conv2d(4, 3, 3, padding=1)
        self.bn2 = nn.BatchNorm2d(3)
        self.fc = nn.Linear(3 * 16, 5)

    def forward(self, x):
        x = torch.relu(self.bn1(self.conv1(x)))
        x = torch.relu(self.bn2(self.conv2(x)))
        return self.fc(x.flatten(1))


def whole(source: str, length: int) -> Segment:
    return Segment(source=source, first=0, start=0, length=length)


STRUCTURE = Structure(
    layers=(
        Layer("conv1", "Conv2d", c_out=4, c_in=2, kernel=9),
        Layer("conv2", "Conv2d", c_out=3, c_in=4, kernel=9, has_bias=True),
        Layer("fc", "Linear", c_out=5, c_in=3, kernel=16, has_bias=True),
    ),
    norms=(
        Norm("bn1", "BatchNorm2d", 4, (whole("conv1", 4),)),
        Norm("bn2", "BatchNorm2d", 3, (whole("conv2", 3),)),
    ),
)


def masks() -> dict[str, np.ndarray]:
    keep1 = np.array([[1, 0], [0, 0], [1, 1], [0, 1]], dtype=bool)  # filter 1 is dead
    keep2 = np.ones((3, 4), dtype=bool)
    keep2[2] = False  # filter 2 is dead
    keep2[0, 1:3] = False
    keep_fc = np.ones((5, 3), dtype=bool)
    keep_fc[0, 0] = keep_fc[4, 2] = False
    return {"conv1": keep1, "conv2": keep2, "fc": keep_fc}


@pytest.fixture
def net():
    return Net()


@pytest.fixture
def images():
    return torch.randn(6, 2, 4, 4, generator=torch.Generator().manual_seed(1))


def test_weights_are_zero_exactly_where_the_mask_says(net):
    dense = {name: module.weight.detach().clone() for name, module in net.named_children()}
    masking.apply_(net, masks(), structure=STRUCTURE)
    for name, keep in masks().items():
        weight, before = net.get_submodule(name).weight.detach(), dense[name]
        kernels = weight.reshape(*keep.shape, -1)
        assert torch.equal(kernels[~keep], torch.zeros_like(kernels[~keep]))
        assert torch.equal(kernels[keep], before.reshape(*keep.shape, -1)[keep])


def test_a_mask_behind_flatten_covers_all_columns_of_a_channel(net):
    masking.apply_(net, masks(), structure=STRUCTURE)
    assert torch.equal(net.fc.weight[0, :16], torch.zeros(16))
    assert bool((net.fc.weight[0, 16:] != 0).all())


def test_dead_filters_are_silent(net, images):
    notes = masking.apply_(net, masks(), structure=STRUCTURE)
    net.eval()
    assert notes == []
    assert torch.equal(net.bn1(net.conv1(images))[:, 1], torch.zeros(6, 4, 4))
    assert torch.equal(net.conv2(torch.randn(1, 4, 4, 4))[:, 2], torch.zeros(1, 4, 4))
    assert set(masking.silenced_of(net)) == {
        "bn1.weight", "bn1.bias", "bn2.weight", "bn2.bias", "conv2.bias"
    }  # fmt: skip
    assert masking.silenced_of(net)["bn1.bias"].tolist() == [True, False, True, True]


def test_without_silence_only_weights_change(net):
    notes = masking.apply_(net, masks(), structure=STRUCTURE, silence=False)
    assert notes == []
    assert masking.silenced_of(net) == {}
    assert set(masking.masks_of(net)) == set(masks())


def test_a_norm_behind_a_concat_is_silenced_at_the_offset_and_only_where_all_sources_are_dead():
    net = nn.ModuleDict({"a": nn.Conv2d(2, 3, 1), "b": nn.Conv2d(2, 3, 1), "n": nn.BatchNorm2d(5)})
    # The norm reads [filters 1, 2 of a; filters 0..2 of b], and its last channel also filter 0 of a
    # (a residual sum).
    structure = Structure(
        layers=(Layer("a", "Conv2d", 3, 2, 1), Layer("b", "Conv2d", 3, 2, 1)),
        norms=(
            Norm(
                "n",
                "BatchNorm2d",
                5,
                (Segment("a", 1, 0, 2), Segment("b", 0, 2, 3), Segment("a", 0, 4, 1)),
            ),
        ),
    )
    keep_a, keep_b = np.ones((3, 2), dtype=bool), np.ones((3, 2), dtype=bool)
    keep_a[2] = False
    keep_b[[0, 2]] = False
    assert masking.apply_(net, {"a": keep_a, "b": keep_b}, structure=structure) == []
    expected = [True, False, False, True, True]
    assert masking.silenced_of(net)["n.weight"].tolist() == expected
    keep_a[0] = False
    masking.apply_(net, {"a": keep_a, "b": keep_b}, structure=structure)
    assert masking.silenced_of(net)["n.weight"].tolist() == [True, False, False, True, False]


def test_what_cannot_be_silenced_is_listed():
    net = nn.ModuleDict(
        {
            "a": nn.Conv2d(2, 4, 1),
            "plain": nn.BatchNorm2d(4, affine=False),
            "group": nn.GroupNorm(2, 4),
        }
    )
    structure = Structure(
        layers=(Layer("a", "Conv2d", 4, 2, 1),),
        norms=(
            Norm("plain", "BatchNorm2d", 4, (whole("a", 4),), affine=False),
            Norm("group", "GroupNorm", 4, (whole("a", 4),)),
        ),
    )
    keep = np.ones((4, 2), dtype=bool)
    keep[3] = False
    notes = masking.apply_(net, {"a": keep}, structure=structure)
    assert len(notes) == 2
    assert "plain" in notes[0]
    assert "group" in notes[1]
    no_structure = masking.apply_(net, {"a": keep})
    assert len(no_structure) == 1
    assert "structure=" in no_structure[0]


def test_remove_restores_value_identity_class_and_order(net, images):
    before = {name: (parameter, parameter.clone()) for name, parameter in net.named_parameters()}
    classes = {name: type(module) for name, module in net.named_modules()}
    expected = net.eval()(images)
    masking.apply_(net, masks(), structure=STRUCTURE)
    assert not torch.allclose(net(images), expected)
    masking.remove_(net)
    assert [name for name, _ in net.named_parameters()] == list(before)
    assert all(before[name][0] is parameter for name, parameter in net.named_parameters())
    assert all(
        torch.equal(before[name][1], parameter) for name, parameter in net.named_parameters()
    )
    assert {name: type(module) for name, module in net.named_modules()} == classes
    assert torch.equal(net(images), expected)
    assert not masking.is_masked(net)


def test_bake_keeps_outputs_identity_and_gives_plain_keys(net, images):
    keys, parameters = list(net.state_dict()), list(net.parameters())
    masking.apply_(net, masks(), structure=STRUCTURE)
    expected = net.eval()(images)
    masking.bake_(net)
    assert list(net.state_dict()) == keys
    assert all(a is b for a, b in zip(net.parameters(), parameters, strict=True))
    assert torch.equal(net(images), expected)
    assert type(net.conv1) is nn.Conv2d


def test_applying_again_replaces_masks_over_dense_weights(net):
    dense = net.conv1.weight.detach().clone()
    masking.apply_(net, masks(), structure=STRUCTURE)
    other = ~masks()["conv1"]
    masking.apply_(net, {"conv1": other}, structure=STRUCTURE)
    assert torch.equal(net.conv1.weight[torch.from_numpy(other)], dense[torch.from_numpy(other)])
    assert set(masking.masks_of(net)) == {"conv1"}
    assert len(net.conv1.parametrizations.weight) == 1


def test_masks_of_is_what_apply_takes(net):
    masking.apply_(net, masks(), structure=STRUCTURE)
    found = masking.masks_of(net)
    assert all(np.array_equal(found[name], keep) for name, keep in masks().items())
    masking.apply_(net, found, structure=STRUCTURE)
    assert all(np.array_equal(masking.masks_of(net)[name], keep) for name, keep in found.items())


def test_deepcopy_is_independent(net, images):
    masking.apply_(net, masks(), structure=STRUCTURE)
    net.eval()
    expected = net(images)
    twin = copy.deepcopy(net)
    assert torch.equal(twin(images), expected)
    masking.remove_(twin)  # must not take the property off the class that both share
    assert torch.equal(net(images), expected)
    assert not torch.allclose(twin(images), expected)
    third = copy.deepcopy(net)
    masking.bake_(third)
    assert torch.equal(third(images), net(images))
    masking.apply_(copy.deepcopy(net), {"fc": masks()["fc"]})
    assert torch.equal(net(images), expected)


def test_state_dict_round_trip(net, images):
    masking.apply_(net, masks(), structure=STRUCTURE)
    masking.mask_of(net.conv1).repaired.fill_(True)
    stream = io.BytesIO()
    torch.save(net.state_dict(), stream)
    stream.seek(0)
    other = Net()
    masking.apply_(other, {k: np.ones_like(v) for k, v in masks().items()}, structure=STRUCTURE)
    # A mask without dead filters silences nothing, so the silenced entries are surplus keys.
    loaded = torch.load(stream, weights_only=True)
    assert "conv1.parametrizations.weight.original" in loaded
    other.load_state_dict(loaded, strict=False)
    assert np.array_equal(masking.masks_of(other)["conv1"], masks()["conv1"])
    assert bool(masking.mask_of(other.conv1).repaired)
    twin = Net()
    masking.apply_(twin, masks(), structure=STRUCTURE)
    twin.load_state_dict(loaded)
    assert torch.equal(twin.eval()(images), net.eval()(images))


def test_optimizer_made_before_or_after_goes_on_and_masked_weights_stay_zero(net, images):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=0.1)
    held = {id(p) for group in optimizer.param_groups for p in group["params"]}
    masking.apply_(net, masks(), structure=STRUCTURE)
    assert {id(p) for p in net.parameters()} == held
    before = net.conv1.weight.detach().clone()
    for _ in range(3):
        optimizer.zero_grad()
        net(images).square().mean().backward()
        optimizer.step()
    gone = torch.from_numpy(~masks()["conv1"])
    assert torch.equal(net.conv1.weight[gone], torch.zeros_like(before[gone]))
    assert not torch.equal(net.conv1.weight[~gone], before[~gone])
    assert torch.equal(net.bn1.weight[1], torch.tensor(0.0))


def test_autocast(net, images):
    masking.apply_(net, masks(), structure=STRUCTURE)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = net(images)
        output.float().square().mean().backward()
    gradient = masking.original_of(net.conv1).grad
    assert output.dtype == torch.bfloat16
    assert gradient is not None
    assert torch.equal(gradient[1], torch.zeros_like(gradient[1]))
    assert bool((gradient[2] != 0).any())


def test_distributed_data_parallel(net, images, tmp_path):
    masking.apply_(net, masks(), structure=STRUCTURE)
    expected = net(images)
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{tmp_path / 'store'}", rank=0, world_size=1
    )
    try:
        wrapped = DistributedDataParallel(net)
        output = wrapped(images)
        output.square().mean().backward()
        assert torch.allclose(output, expected)  # train-mode BatchNorm: same batch, same output
        assert torch.equal(masking.original_of(net.conv1).grad[1], torch.zeros(2, 3, 3))
    finally:
        torch.distributed.destroy_process_group()
        os.environ.pop("TORCH_NCCL_ASYNC_ERROR_HANDLING", None)


def test_compile_with_aot_eager(net, images):
    masking.apply_(net, masks(), structure=STRUCTURE)
    net.eval()
    expected = net(images)
    compiled = torch.compile(net, backend="aot_eager")
    try:
        # aot_eager runs the same kernels in the same order; 1e-6 allows for fused rounding only
        assert torch.allclose(compiled(images), expected, atol=1e-6)
        compiled(images).square().mean().backward()
        assert torch.equal(masking.original_of(net.conv1).grad[1], torch.zeros(2, 3, 3))
    finally:
        torch.compiler.reset()


def test_double_and_channels_last_hold(net, images):
    net.double().to(memory_format=torch.channels_last)
    masking.apply_(net, masks(), structure=STRUCTURE)
    assert net.conv2.weight.dtype == torch.float64
    assert net.conv2.weight.is_contiguous(memory_format=torch.channels_last)
    assert net(images.double()).shape == (6, 5)


def test_a_masked_nan_is_zero(net):
    with torch.no_grad():
        net.conv1.weight[1] = float("nan")
    masking.apply_(net, masks(), structure=STRUCTURE)
    assert bool(torch.isfinite(net.conv1.weight).all())


def test_assigning_to_a_masked_weight_keeps_the_mask(net):
    masking.apply_(net, masks(), structure=STRUCTURE)
    net.conv1.weight = torch.ones(4, 2, 3, 3)
    assert int(net.conv1.weight.detach().sum()) == 9 * int(masks()["conv1"].sum())


def test_repaired_weights_stay_marked_under_new_masks(net):
    masking.apply_(net, masks(), structure=STRUCTURE)
    masking.mask_of(net.conv2).repaired.fill_(True)
    masking.apply_(net, masks(), structure=STRUCTURE)
    assert bool(masking.mask_of(net.conv2).repaired)
    assert not bool(masking.mask_of(net.conv1).repaired)


class Doubled(nn.Module):
    def forward(self, weight):
        return 2 * weight


@pytest.mark.parametrize(
    ("layers", "words"),
    [
        ({"conv3": np.ones((4, 2), dtype=bool)}, ["conv3", "conv"]),
        ({"conv1": np.ones((4, 3), dtype=bool)}, ["conv1", "(4, 2, 3, 3)", "(4, 3)"]),
        ({"conv1": np.ones((4, 2))}, ["conv1", "bool", "float64"]),
        ({"fc": np.ones((5, 48), dtype=bool)}, ["fc", "(5, 3)", "(5, 48)"]),
        ({"bn1": np.ones((4, 1), dtype=bool)}, ["bn1", "(4,)"]),
        ({"": np.ones((4, 1), dtype=bool)}, ["Net", "weight"]),
    ],
)
def test_bad_masks_are_refused_by_name_and_change_nothing(net, layers, words):
    with pytest.raises(InputError) as caught:
        masking.apply_(net, {**masks(), **layers}, structure=STRUCTURE)
    assert all(word in str(caught.value) for word in words)
    assert not masking.is_masked(net)


def test_foreign_parametrizations_are_refused(net):
    parametrize.register_parametrization(net.conv1, "weight", Doubled())
    with pytest.raises(InputError, match="Doubled"):
        masking.apply_(net, masks(), structure=STRUCTURE)
    assert not masking.is_masked(net)


def test_a_shared_weight_needs_one_mask():
    net = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    net[1].weight = net[0].weight
    keep = np.eye(3, dtype=bool)
    with pytest.raises(InputError, match="share one weight"):
        masking.apply_(net, {"0": keep})
    masking.apply_(net, {"0": keep, "1": keep})
    masking.bake_(net)
    assert net[0].weight is net[1].weight
    assert int((net[0].weight != 0).sum()) == 3

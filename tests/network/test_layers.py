"""What is prunable, what is kept and why."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import prune
from toynets import Grouped, Net, Plain, Residual, conv, hooks_on, images, segment

from snacs.errors import InputError
from snacs.network.layers import bias_of, find_structure, module_of, weight_of
from snacs.network.masking import apply_
from snacs.values import MIXED, Structure

X = images(3, 8, 8)


def reason(structure: Structure, name: str) -> str:
    return structure[name].kept_because or ""


def left(structure: Structure) -> dict[str, str]:
    return {each.name: each.reason for each in structure.left_alone}


@pytest.mark.parametrize("kind", [Plain, Residual, Grouped])
def test_weights_and_macs_are_those_counted_by_hand(kind: type[Plain]) -> None:
    structure = find_structure(kind(), images(*kind.image))
    assert structure.weights == kind.weights
    assert structure.macs == kind.macs


def test_first_and_last_are_kept_unless_told_otherwise() -> None:
    structure = find_structure(Plain(), (X, torch.zeros(6).long()))
    assert [layer.name for layer in structure.prunable] == ["second"]
    assert "first layer" in reason(structure, "first")
    assert "final classifier" in reason(structure, "head")
    free = find_structure(Plain(), X, keep_first=False, keep_last=False)
    assert [layer.name for layer in free.prunable] == ["first", "second", "head"]


def test_layer_fields() -> None:
    structure = find_structure(Plain(), X)
    head, second = structure["head"], structure["second"]
    assert (head.kind, head.c_out, head.c_in, head.kernel, head.positions) == (
        "Linear",
        10,
        6,
        16,
        1,
    )
    assert (second.kind, second.c_out, second.c_in, second.kernel, second.positions) == (
        "Conv2d",
        6,
        4,
        9,
        64,
    )
    assert head.feeds == (segment("second", 0, 0, 6),)
    assert (second.consumers, second.has_bias, second.groups) == (("head",), True, 1)


def test_depthwise_is_kept_and_grouped_is_pruned_within_its_groups() -> None:
    structure = find_structure(Grouped(), images(3, 4, 4))
    assert "depthwise" in reason(structure, "depth")
    group = structure["group"]
    assert (group.prunable, group.c_in, group.groups, group.channels) == (True, 2, 2, 4)
    assert [layer.name for layer in structure.prunable] == ["group", "stride"]


def test_a_layer_that_also_reads_the_raw_input_is_not_the_first() -> None:
    net = Net(
        lambda net, x: net.c(net.b(torch.cat([x, net.a(x)], 1))).mean((2, 3)),
        a=conv(3, 4),
        b=conv(7, 4),
        c=conv(4, 2),
    )
    assert [layer.name for layer in find_structure(net, X).prunable] == ["b"]


def test_all_heads_are_final_classifiers() -> None:
    def forward(net: Net, x: Tensor) -> dict[str, Tensor]:
        y = net.b(net.a(x)).mean((2, 3))
        return {"logits": net.one(y) + net.two(y), "aux": net.three(y)}

    net = Net(
        forward,
        a=conv(3, 4),
        b=conv(4, 4),
        one=nn.Linear(4, 3),
        two=nn.Linear(4, 3),
        three=nn.Linear(4, 5),
    )
    structure = find_structure(net, X)
    assert [layer.name for layer in structure.prunable] == ["b"]
    assert all("final" in reason(structure, name) for name in ("one", "two", "three"))


def test_convolutional_stream_keeps_only_its_last_layer() -> None:
    def forward(net: Net, x: Tensor) -> Tensor:
        y = net.a(x)
        y = y + net.b(functional.relu(y))
        return (y + net.c(functional.relu(y))).mean((2, 3))

    net = Net(forward, a=conv(3, 4), b=conv(4, 4), c=conv(4, 4))
    assert [layer.name for layer in find_structure(net, X).prunable] == ["b"]


def test_what_cannot_be_treated_is_listed_with_its_reason() -> None:
    def forward(net: Net, ids: Tensor) -> Tensor:
        y = net.inner(net.embed(ids))
        y = net.rnn(y)[0]
        y = net.attention(y, y, y)[0]
        y = net.up(y.transpose(1, 2)).transpose(1, 2)
        y = net.mix(y, y) + functional.linear(y, net.own)
        return net.head(net.middle(y).mean(1))

    net = Net(
        forward,
        embed=nn.Embedding(10, 8),
        inner=nn.Linear(8, 8),
        rnn=nn.GRU(8, 8, batch_first=True),
        attention=nn.MultiheadAttention(8, 2, batch_first=True),
        up=nn.ConvTranspose1d(8, 8, 2, 2),
        mix=nn.Bilinear(8, 8, 8),
        own=nn.Parameter(torch.eye(8)),
        middle=nn.Linear(8, 8),
        head=nn.Linear(8, 3),
        never=nn.Linear(8, 3),
        lazy=nn.LazyLinear(3),
    )
    structure = find_structure(net, torch.arange(12).reshape(3, 4) % 10)
    assert [layer.name for layer in structure.prunable] == ["inner", "middle"]
    found = left(structure)
    assert set(found) == {
        "",
        "embed",
        "rnn",
        "attention",
        "attention.out_proj",
        "up",
        "mix",
        "never",
        "lazy",
    }
    assert "recurrent" in found["rnn"]
    assert "transposed" in found["up"]
    assert "never called" in found["never"]
    assert "MultiheadAttention" in found["attention.out_proj"]
    assert "no weights yet" in found["lazy"]


def test_linear_layers_inside_a_transformer_count_but_stay() -> None:
    block = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    net = nn.Sequential(nn.Linear(4, 8), block, nn.Linear(8, 8), nn.Linear(8, 3))
    structure = find_structure(net, images(5, 4))
    assert [layer.name for layer in structure.prunable] == ["2"]
    assert "TransformerEncoderLayer" in reason(structure, "1.linear1")
    assert structure["1.linear1"].positions == 5
    assert structure.weights == 4 * 8 + 2 * 8 * 16 + 64 + 24


def test_tokens_are_positions() -> None:
    net = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 5), nn.Linear(5, 2))
    structure = find_structure(net, images(7, 4))
    assert [(layer.positions, layer.kernel) for layer in structure] == [(7, 1)] * 3


@pytest.mark.parametrize("dims", [1, 3])
def test_other_dimensions(dims: int) -> None:
    kind = {1: nn.Conv1d, 3: nn.Conv3d}[dims]
    net = nn.Sequential(kind(2, 3, 3), kind(3, 4, 2, stride=2), kind(4, 2, 1), nn.Flatten(1))
    structure = find_structure(net, images(2, *[6] * dims))
    layer = structure["1"]
    assert (layer.kind, layer.kernel, layer.positions) == (f"Conv{dims}d", 2**dims, 2**dims)


def test_shared_weights_are_kept() -> None:
    net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 2))
    net[1].weight = net[0].weight
    structure = find_structure(net, images(4), keep_first=False)
    assert "shares its weight with '1'" in reason(structure, "0")
    assert structure["2"].prunable


def test_tied_embedding_keeps_its_linear() -> None:
    net = Net(
        lambda net, ids: net.head(net.b(net.embed(ids))).mean(1),
        embed=nn.Embedding(9, 4),
        b=nn.Linear(4, 4),
        head=nn.Linear(4, 9, bias=False),
    )
    net.head.weight = net.embed.weight
    structure = find_structure(net, torch.zeros(3, 5, dtype=torch.long), keep_last=False)
    assert "shares its weight with 'embed'" in reason(structure, "head")


def test_weights_made_by_others_are_kept() -> None:
    net = nn.Sequential(*(nn.Linear(4, 4) for _ in range(5)))
    nn.utils.parametrizations.weight_norm(net[1])
    nn.utils.parametrizations.spectral_norm(net[2])
    prune.l1_unstructured(net[3], "weight", amount=2)
    structure = find_structure(net, images(4), keep_first=False)
    assert "WeightNorm" in reason(structure, "1")
    assert "SpectralNorm" in reason(structure, "2")
    assert "hook" in reason(structure, "3")
    assert [layer.name for layer in structure.prunable] == ["0"]


def test_a_subclass_with_its_own_forward_is_kept() -> None:
    class Standardised(nn.Conv2d):
        def forward(self, x: Tensor) -> Tensor:
            return functional.conv2d(x, self.weight - self.weight.mean(), padding=1)

    class Renamed(nn.Conv2d):
        pass

    net = nn.Sequential(
        conv(3, 4), Standardised(4, 4, 3), Renamed(4, 4, 3), conv(4, 2), nn.Flatten(1)
    )
    structure = find_structure(net, X)
    assert "Standardised has a forward of its own" in reason(structure, "1")
    assert [layer.name for layer in structure.prunable] == ["2"]
    assert structure["2"].kind == "Conv2d"


def test_own_masks_can_be_read_through() -> None:
    net = Residual()
    before = find_structure(net, X)
    keep = np.ones((4, 4), dtype=bool)
    keep[1, 2] = False
    keep[3] = False  # a dead filter: its BatchNorm is masked too
    apply_(net, {"a.conv1": keep}, structure=before)
    after = find_structure(net, X)
    assert after == before
    weight = weight_of(module_of(net, "a.conv1"), after["a.conv1"])
    assert not weight[1, 2].any()
    assert weight[1, 1].all()


def test_ignore_takes_names_patterns_expressions_and_types() -> None:
    def ignored(*entries: object) -> list[str]:
        structure = find_structure(Residual(), X, ignore=entries)
        return [layer.name for layer in structure if "ignored" in (layer.kept_because or "")]

    assert ignored("a.conv1") == ["a.conv1"]
    assert ignored("a.*") == ["a.conv1", "a.conv2"]
    assert ignored("a") == ["a.conv1", "a.conv2"]
    assert ignored(re.compile(r"conv2$")) == ["a.conv2", "b.conv2"]
    assert ignored("b.conv1", "*conv2") == ["a.conv2", "b.conv1", "b.conv2"]
    assert ignored(nn.Linear) == ["fc"]


def test_a_single_pattern_need_not_be_a_list() -> None:
    structure = find_structure(Residual(), X, ignore="a.*")  # type: ignore[arg-type]
    assert "ignored (a.*)" in reason(structure, "a.conv1")


def test_ignore_that_matches_nothing_names_close_ones() -> None:
    with pytest.raises(InputError, match=r"'a\.conv3'.*Did you mean.*'a\.conv1'"):
        find_structure(Residual(), X, ignore=["a.conv3"])
    with pytest.raises(InputError, match="Conv3d"):
        find_structure(Residual(), X, ignore=[nn.Conv3d])
    with pytest.raises(InputError, match="regular expressions"):
        find_structure(Residual(), X, ignore=[3])  # type: ignore[list-item]


def test_nothing_to_prune_lists_everything() -> None:
    net = nn.Sequential(conv(3, 4), nn.ReLU(), nn.Flatten(), nn.Linear(256, 3))
    with pytest.raises(InputError, match=r"nothing to prune.*0 \(Conv2d\).*3 \(Linear\)"):
        find_structure(net, X)
    with pytest.raises(InputError, match="no layers with weights at all"):
        find_structure(nn.Sequential(nn.ReLU(), nn.Flatten()), X)
    assert hooks_on(net) == 0


@pytest.mark.parametrize("part", ["weight", "bias"])
def test_nan_weights_name_the_layer(part: str) -> None:
    net = Plain()
    with torch.no_grad():
        getattr(net.second, part).view(-1)[0] = float("nan")
    with pytest.raises(InputError, match=f"'second' has 1 NaN or infinite numbers in its {part}"):
        find_structure(net, X)


def test_batches_without_images_are_refused() -> None:
    with pytest.raises(InputError, match="no images"):
        find_structure(Plain(), torch.empty(0, 3, 8, 8))
    with pytest.raises(InputError, match="at least one tensor"):
        find_structure(Plain(), "images")


def test_weight_and_bias_as_arrays() -> None:
    net = Plain().double()
    structure = find_structure(net, X)
    weight = weight_of(net.head, structure["head"])
    assert weight.dtype == np.float32
    expected = net.head.weight.detach().float().numpy().reshape(10, 6, 16)
    np.testing.assert_array_equal(weight, expected)
    np.testing.assert_array_equal(bias_of(net.head), net.head.bias.detach().float().numpy())
    assert bias_of(Residual().stem) is None
    weight[:] = 0
    assert net.head.weight.abs().sum() > 0


def test_structure_of_another_network_is_refused() -> None:
    structure = find_structure(Plain(), X)
    with pytest.raises(InputError, match="'second' should have 216 weights"):
        weight_of(conv(3, 5), structure["second"])
    with pytest.raises(InputError, match=r"no module 'secnd'.*'second'"):
        module_of(Plain(), "secnd")


def test_odd_names_and_half_precision() -> None:
    net = nn.Sequential()
    for name, module in (("<script>", conv(3, 4)), ("a b/c", conv(4, 4)), ("é", conv(4, 2))):
        net.add_module(name, module)
    structure = find_structure(net.bfloat16(), X)
    assert [layer.name for layer in structure.prunable] == ["a b/c"]


def test_transformed_input_is_still_the_input() -> None:
    def forward(net: Net, x: Tensor) -> Tensor:
        patches = functional.unfold(x / 255, 4, stride=4).transpose(1, 2)
        return net.c(net.b(net.a(patches))).mean(1)

    net = Net(forward, a=nn.Linear(48, 8), b=nn.Linear(8, 8), c=nn.Linear(8, 3))
    structure = find_structure(net, (X.abs() * 99).to(torch.uint8))
    assert "first layer" in reason(structure, "a")
    assert structure["a"].positions == 4


def test_compiled_networks_are_watched_eagerly() -> None:
    net = Plain()
    compiled = find_structure(torch.compile(net, backend="aot_eager"), X)
    plain = find_structure(net, X)
    assert [layer.name for layer in compiled.prunable] == ["_orig_mod.second"]
    assert (compiled.weights, compiled.macs) == (plain.weights, plain.macs)


def test_wrapped_networks_have_prefixed_names() -> None:
    structure = find_structure(nn.DataParallel(Plain()), X)
    assert [layer.name for layer in structure.prunable] == ["module.second"]


class Foreign(nn.Module):
    """Stands for a module whose inside no torch function shows, such as TorchScript."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.from_numpy(np.maximum(x.numpy(), 0))


def test_what_a_foreign_module_returns_may_come_from_anywhere() -> None:
    net = nn.Sequential(conv(3, 4), conv(4, 4), Foreign(), conv(4, 4), conv(4, 2))
    structure = find_structure(net, X)
    assert structure["3"].feeds == (segment(MIXED, 0, 0, 4),)
    assert "3" in structure["1"].consumers

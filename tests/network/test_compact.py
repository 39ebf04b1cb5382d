"""Compaction on every kind of wiring: same outputs, sizes by hand, and what cannot go is listed."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional
from toynets import Grouped, Net, Plain, Residual, conv, hooks_on, images, randomise_norms

from snacs.errors import InputError, ModelError
from snacs.network.compact import CompactReport, compact, compact_report
from snacs.network.cost import cost
from snacs.network.layers import find_structure
from snacs.network.masking import apply_, bake_, is_masked
from snacs.streams import streams
from snacs.values import BoolArray, Structure

X = images(3, 8, 8)


def outputs(model: nn.Module, x: Tensor = X) -> Tensor:
    was = model.training
    model.eval()
    with torch.no_grad():
        found = model(x)
    model.train(was)
    return found


def squeeze(model: nn.Module, x: Tensor = X, **options: Any) -> tuple[nn.Module, CompactReport]:
    """Compact, and check what must always hold."""
    before = {key: value.clone() for key, value in model.state_dict().items()}
    small = compact(model, x, **options)
    # Only the order of float32 sums changes: 1e-5 of outputs of order 1.
    torch.testing.assert_close(outputs(small, x), outputs(model, x), rtol=1e-5, atol=1e-5)
    assert not is_masked(small)
    assert hooks_on(small) == hooks_on(model) == 0
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())
    report = compact_report(small)
    for layer in report.layers:
        assert small.get_submodule(layer.name).weight.numel() == layer.weights_left
    return small, report


def kill(model: nn.Module, **filters: list[int]) -> None:
    """Set all weights of some filters to zero, bias included; names with __ for dots."""
    with torch.no_grad():
        for name, numbers in filters.items():
            module = model.get_submodule(name.replace("__", "."))
            module.weight[numbers] = 0
            if module.bias is not None:
                module.bias[numbers] = 0


def mask_streams(structure: Structure, share: float, seed: int = 0) -> dict[str, BoolArray]:
    """Masks that kill a share of all streams that may go."""
    random = np.random.default_rng(seed)
    keep = {layer.name: np.ones((layer.c_out, layer.c_in), bool) for layer in structure.prunable}
    for stream in streams(structure):
        if stream.kept_because is None and random.random() < share:
            for name, index in stream.members:
                keep[name][index] = False
    for name, mask in keep.items():
        if not mask.any():
            keep[name][0] = True
    return keep


def assert_counted(model: nn.Module, x: Tensor, share: float, **options: Any) -> CompactReport:
    """Mask streams; the compacted network has exactly the size that ``cost`` counts."""
    structure = find_structure(model, x, **options)
    masks = mask_streams(structure, share)
    assert apply_(model, masks, structure=structure) == []
    small, report = squeeze(model, x)
    counted = cost(structure, masks)
    assert {r.name: r.filters_left for r in counted.layers} == {
        r.name: r.filters_left for r in report.layers
    }
    assert cost(find_structure(small, x)).macs == counted.macs_compacted
    assert report.removed_filters > 0
    assert report.undone == ()
    return report


def test_sizes_by_hand_through_a_flatten() -> None:
    model = Plain()
    kill(model, first=[1], second=[0, 5])
    small, report = squeeze(model)
    assert small.first.weight.shape == (3, 3, 3, 3)
    assert small.second.weight.shape == (4, 3, 3, 3)
    assert small.head.weight.shape == (10, 4 * 16)
    assert (small.second.in_channels, small.second.out_channels) == (3, 4)
    assert small.head.in_features == 64
    torch.testing.assert_close(small.head.weight, model.head.weight[:, 16 : 5 * 16])
    assert report["first"].dead == 1
    assert report.removed_filters == 3
    assert report.removed_weights == Plain.weights - (3 * 27 + 4 * 27 + 640)
    assert type(small) is Plain


def test_what_nobody_reads_goes_although_it_is_alive() -> None:
    model = Plain()
    with torch.no_grad():
        model.second.weight[:, 2] = 0
        model.head.weight[:, 16:32] = 0
    _, report = squeeze(model)
    assert report["first"].filters_left == 3
    assert report["second"].filters_left == 5
    assert report["second"].dead == 0


def test_a_chain_of_consequences() -> None:
    """The only reader of a filter dies: the filter goes as well, and what feeds only it."""
    model = nn.Sequential(conv(3, 4), nn.ReLU(), conv(4, 4), nn.ReLU(), conv(4, 4), nn.Flatten())
    model.append(nn.Linear(256, 3))
    with torch.no_grad():
        model[2].weight[:, 1] = 0
        model[2].weight[3, 1] = 1  # only filter 3 reads channel 1,
        model[4].weight[:, 3] = 0
        model[4].weight[2, 3] = 1  # only filter 2 reads filter 3,
    kill(model, **{"4": [2]})  # and that one is dead
    _, report = squeeze(model)
    assert [layer.filters_left for layer in report.layers] == [3, 3, 3, 3]


def test_a_residual_stream_goes_as_a_whole_or_not_at_all() -> None:
    model = randomise_norms(Residual())
    structure = find_structure(model, X, keep_first=False)
    keep = {layer.name: np.ones((layer.c_out, layer.c_in), bool) for layer in structure.prunable}
    keep["stem"][1] = keep["a.conv2"][1] = keep["b.conv2"][1 + 2] = False  # one stream
    keep["a.conv2"][0] = False  # half of another: the stem's filter 0 lives
    keep["b.conv2"][7] = False  # nothing but padding meets it
    apply_(model, keep, structure=structure)
    small, report = squeeze(model)
    assert small.stem.weight.shape[0] == 3
    assert small.a.conv2.weight.shape == (3, 4, 3, 3)
    assert small.b.conv2.weight.shape == (6, 8, 3, 3)
    (left,) = report.left
    assert (left.layers, left.filters) == (("a.conv2",), 1)
    assert "shares its channel" in left.reason
    # The inline padded shortcut had its counts corrected; the keys are the same.
    assert report.rewritten == ("b",)
    assert set(small.state_dict()) == set(Residual().state_dict())


@pytest.mark.parametrize("kind", [Plain, Residual])
@pytest.mark.parametrize("share", [0.3, 0.7])
def test_smaller_by_exactly_the_counted_amount(kind: type[nn.Module], share: float) -> None:
    assert_counted(randomise_norms(kind()), X, share, keep_first=False)


class LambdaShortcut(nn.Module):
    """As in the best known ResNet56 for CIFAR-10: a padding that only a closure knows."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


def test_padding_in_a_closure_is_corrected() -> None:
    def forward(net: Net, x: Tensor) -> Tensor:
        x = functional.relu(net.stem(x))
        return net.fc(functional.relu(net.conv(x) + net.shortcut(x)).mean((2, 3)))

    pad = LambdaShortcut(
        lambda x: functional.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, 1, 3), "constant")
    )
    model = Net(
        forward, stem=conv(3, 4), conv=conv(4, 8, stride=2), shortcut=pad, fc=nn.Linear(8, 2)
    )
    # Stream of the stem's filter 2 is channel 3 behind the padding; 0, 6 and 7 are padding alone.
    kill(model, stem=[2], conv=[0, 3, 6, 7])
    small, report = squeeze(model)
    assert report.rewritten == ("shortcut",)
    assert type(small) is Net
    assert small.conv.weight.shape == (4, 3, 3, 3)
    assert small.shortcut(torch.ones(1, 3, 4, 4)).sum((2, 3)).tolist() == [[4, 4, 4, 0]]


class DenseBlock(nn.Module):
    """DenseNet: each layer normalises and reads all that came before it."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = conv(3, 6, bias=False)
        self.norms = nn.ModuleList(nn.BatchNorm2d(6 + 4 * i) for i in range(3))
        self.convs = nn.ModuleList(conv(6 + 4 * i, 4, bias=False) for i in range(3))
        self.norm, self.fc = nn.BatchNorm2d(18), nn.Linear(18, 5)

    def forward(self, x: Tensor) -> Tensor:
        parts = [self.stem(x)]
        for norm, layer in zip(self.norms, self.convs, strict=True):
            parts.append(layer(functional.relu(norm(torch.cat(parts, 1)))))
        return self.fc(functional.relu(self.norm(torch.cat(parts, 1))).mean((2, 3)))


class Inception(nn.Module):
    """Four branches of different kinds, concatenated."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(conv(3, 8, bias=False), nn.BatchNorm2d(8), nn.ReLU())
        self.one = nn.Sequential(conv(8, 4, 1), nn.ReLU())
        self.three = nn.Sequential(conv(8, 5, 1), nn.ReLU(), conv(5, 6, 3), nn.ReLU())
        self.five = nn.Sequential(conv(8, 3, 1), nn.ReLU(), conv(3, 4, 5), nn.ReLU())
        self.pool = nn.Sequential(nn.MaxPool2d(3, 1, 1), conv(8, 2, 1), nn.ReLU())
        self.head = nn.Sequential(conv(16, 6), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.fc = nn.Linear(6, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        x = torch.cat([self.one(x), self.three(x), self.five(x), self.pool(x)], dim=1)
        return self.fc(self.head(x))


@pytest.mark.parametrize("kind", [DenseBlock, Inception])
def test_concatenations(kind: type[nn.Module]) -> None:
    torch.manual_seed(0)
    report = assert_counted(randomise_norms(kind()), X, 0.4, keep_first=False)
    assert report.removed_weights > 0.3 * report.weights
    assert report.left == ()


def squeeze_excite() -> Net:
    def forward(net: Net, x: Tensor) -> Tensor:
        x = functional.relu(net.norm(net.wide(functional.relu(net.stem(x)))))
        gate = torch.sigmoid(net.up(functional.relu(net.down(x.mean((2, 3), keepdim=True)))))
        return net.fc((x * gate).mean((2, 3)))

    return randomise_norms(
        Net(
            forward,
            stem=conv(3, 4),
            wide=conv(4, 8),
            norm=nn.BatchNorm2d(8),
            down=conv(8, 3, 1),
            up=conv(3, 8, 1),
            fc=nn.Linear(8, 5),
        )
    )


def test_a_dead_filter_takes_its_live_gate_along() -> None:
    model = squeeze_excite()
    structure = find_structure(model, X)
    keep = np.ones((8, 4), bool)
    keep[[1, 6]] = False
    apply_(model, {"wide": keep}, structure=structure)
    small, report = squeeze(model)
    assert small.wide.weight.shape[0] == small.up.weight.shape[0] == 6
    assert small.down.weight.shape[1] == small.fc.weight.shape[1] == small.norm.num_features == 6
    assert report.left == ()


def test_a_closed_gate_is_not_a_dead_filter() -> None:
    """A gate without weights is a constant 1/2: its filter must stay."""
    model = squeeze_excite()
    kill(model, up=[2])
    _, report = squeeze(model)
    assert report.removed_filters == 0
    assert sum(removal.filters for removal in report.left) == 1


def grouped() -> nn.Sequential:
    return nn.Sequential(
        *(conv(3, 8, 1), nn.ReLU(), conv(8, 12, groups=4), nn.ReLU(), conv(12, 4, 1), nn.ReLU()),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3)),
    )


def test_only_whole_groups_go() -> None:
    model = grouped()
    kill(model, **{"2": [3, 4, 5, 6]})  # all of group 1, one filter of group 2
    small, report = squeeze(model)
    assert (small[2].groups, small[2].in_channels, small[2].out_channels) == (3, 6, 9)
    assert small[2].weight.shape == (9, 2, 3, 3)
    assert small[0].weight.shape[0] == 6
    assert small[4].weight.shape[1] == 9
    assert [(r.layers, r.filters) for r in report.left] == [(("2",), 1)]


def test_depthwise_filters_go_with_what_they_read() -> None:
    model = nn.Sequential(
        *(conv(3, 6, 1), nn.ReLU(), conv(6, 6, groups=6), nn.ReLU(), conv(6, 4, 1), nn.ReLU()),
        *(nn.Flatten(), nn.Linear(256, 3)),
    )
    kill(model, **{"2": [1, 4]})
    small, _ = squeeze(model)
    assert (small[2].groups, small[2].out_channels) == (4, 4)
    assert small[0].weight.shape[0] == small[4].weight.shape[1] == 4


def test_the_grouped_toy_of_the_trace() -> None:
    model = Grouped()
    kill(model, group=[4, 5, 6, 7])  # the second of two groups
    small, _ = squeeze(model, images(3, 4, 4))
    assert small.group.groups == 1
    assert small.depth.groups == small.point.out_channels == 2


def view(net: Net, x: Tensor) -> Tensor:
    return net.fc(functional.relu(net.conv(x)).view(-1, 6 * 64))


def parts(net: Net, x: Tensor) -> Tensor:
    a, b = torch.split(functional.relu(net.conv(x)), [4, 2], dim=1)
    return net.fc(torch.cat([b, a], 1).flatten(1))


def halves(net: Net, x: Tensor) -> Tensor:
    a, b = functional.relu(net.conv(x)).chunk(2, dim=1)
    return net.fc(torch.cat([b, a], 1).flatten(1))


def slices(net: Net, x: Tensor) -> Tensor:
    x = functional.relu(net.conv(x))
    return net.fc(torch.cat([x[:, 4:], x[:, :4]], 1).flatten(1))


def narrowed(net: Net, x: Tensor) -> Tensor:
    x = functional.relu(net.conv(x))
    return net.fc(torch.cat([x.narrow(1, 4, 2), x.narrow(1, 0, 4)], 1).flatten(1))


def folded_up(net: Net, x: Tensor) -> Tensor:
    x = functional.relu(net.conv(x)).flatten(1)
    return net.fc(x.unflatten(1, (6, 64)).reshape(x.size(0), 384))


class One(Net):
    """A forward with a plain signature, which torch.fx can trace."""

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self, x)


@pytest.mark.parametrize("function", [view, parts, halves, slices, narrowed, folded_up])
def test_hard_coded_counts_are_corrected(function: Callable[..., Tensor]) -> None:
    model = One(function, conv=conv(3, 6), fc=nn.Linear(384, 5))
    kill(model, conv=[0, 1, 5])
    small, report = squeeze(model)
    assert report.rewritten == ("",)
    assert small.conv.weight.shape[0] == 3
    assert small.fc.weight.shape == (5, 192)
    assert set(small.state_dict()) == set(model.state_dict())
    assert report.undone == ()
    torch.testing.assert_close(outputs(small, X[:1]), outputs(model, X[:1]))


def test_counts_that_a_forward_computes_need_no_rewriting() -> None:
    def forward(net: Net, x: Tensor) -> Tensor:
        x = functional.relu(net.conv(x))
        return net.fc(x.view(x.size(0), x.shape[1] * 64))

    model = Net(forward, conv=conv(3, 6), fc=nn.Linear(384, 5))
    kill(model, conv=[0, 3])
    small, report = squeeze(model)
    assert report.rewritten == ()
    assert type(small) is Net


def test_what_cannot_go_is_undone_and_listed_and_the_rest_goes() -> None:
    def forward(net: Net, x: Tensor) -> Tensor:
        x = functional.relu(net.first(x))
        x = functional.relu(net.second(x) * net.scale)  # a parameter per channel that nobody cuts
        return net.fc(functional.relu(net.third(x)).mean((2, 3)))

    model = Net(
        forward,
        first=conv(3, 4),
        second=conv(4, 6),
        scale=nn.Parameter(torch.rand(6, 1, 1) + 0.5),
        third=conv(6, 4),
        fc=nn.Linear(4, 3),
    )
    kill(model, first=[0], second=[1, 2], third=[3])
    _, report = squeeze(model)
    (undone,) = report.undone
    assert (undone.layers, undone.filters) == (("second",), 2)
    assert "forward does not allow it" in undone.reason
    assert [layer.filters_left for layer in report.layers] == [3, 6, 3, 3]
    assert "Undone: 2 filter(s) of second" in str(report)
    assert [(r.layers, r.filters) for r in report.left] == [(("second",), 2)]


def test_an_untraceable_forward_with_counts_is_undone() -> None:
    def forward(net: Net, x: Tensor) -> Tensor:
        x = functional.relu(net.conv(x))
        if float(x.sum()) < 0:
            return net.fc(x.flatten(1))
        return net.fc(x.view(-1, 384))

    model = One(forward, conv=conv(3, 6), fc=nn.Linear(384, 5))
    kill(model, conv=[1])
    _, report = squeeze(model)
    (undone,) = report.undone
    assert "cannot be traced" in undone.reason


def test_a_constant_is_taken_over_by_the_bias_where_nothing_is_padded() -> None:
    """Unsilenced bias 2, ReLU, then a 1×1 convolution without bias and a Linear layer."""
    model = nn.Sequential(conv(3, 4), nn.ReLU(), conv(4, 5, 1, bias=False), nn.ReLU())
    model += nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(5, 3))
    kill(model, **{"0": [1]})
    with torch.no_grad():
        model[0].bias[1] = 2.0
    small, report = squeeze(model)
    assert small[0].weight.shape[0] == 3
    assert report.constants == {"2": 1}
    torch.testing.assert_close(small[2].bias, 2 * model[2].weight[:, 1, 0, 0])


def test_a_constant_that_nobody_reads_makes_no_bias() -> None:
    model = nn.Sequential(conv(3, 4), nn.ReLU(), conv(4, 5, bias=False), nn.Flatten())
    model.append(nn.Linear(320, 3))
    kill(model, **{"0": [1]})
    with torch.no_grad():
        model[0].bias[1] = 2.0
        model[2].weight[1:, 1] = 0  # only filter 0 reads it,
        model[4].weight[:, :64] = 0  # and nobody reads that one
    small, report = squeeze(model)
    assert small[0].weight.shape[0] == 3
    assert small[2].bias is None
    assert report.constants == {}


def test_a_constant_under_padding_stays_and_is_listed() -> None:
    model = nn.Sequential(conv(3, 4), nn.ReLU(), conv(4, 5), nn.Flatten(), nn.Linear(320, 3))
    kill(model, **{"0": [1, 2]})
    with torch.no_grad():
        model[0].bias[1] = 2.0  # reaches the next convolution
        model[0].bias[2] = -2.0  # does not pass the ReLU
    small, report = squeeze(model)
    assert small[0].weight.shape[0] == 3
    (left,) = report.left
    assert (left.layers, left.filters) == (("0",), 1)
    assert "constant" in left.reason


def test_batchnorm_that_was_not_silenced() -> None:
    model = nn.Sequential(conv(3, 4, bias=False), nn.BatchNorm2d(4), nn.ReLU(), conv(4, 2))
    model += nn.Sequential(nn.Flatten(), nn.Linear(128, 3))
    randomise_norms(model)
    kill(model, **{"0": [0, 1]})
    with torch.no_grad():
        model[1].running_mean[:] = 0
        model[1].bias[:] = torch.tensor([0.5, -0.5, 0.1, 0.1])
    small, report = squeeze(model)
    assert small[1].num_features == small[0].out_channels == 3
    assert [removal.filters for removal in report.left] == [1]


def test_a_channel_that_batchnorm_silences_goes_with_its_live_filter() -> None:
    """As network slimming leaves it: scale and shift 0."""
    model = nn.Sequential(conv(3, 4), nn.BatchNorm2d(4), nn.ReLU(), conv(4, 2), nn.Flatten())
    model.append(nn.Linear(128, 3))
    with torch.no_grad():
        model[1].weight[2] = model[1].bias[2] = 0
    small, _ = squeeze(model)
    assert small[0].weight.shape[0] == 3
    assert small[1].running_mean.shape == (3,)


def test_units_that_a_relu_often_silences_are_not_dead() -> None:
    """Of 64 hidden units in one vector per image, none may be mistaken for a constant."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU())
    model.append(nn.Linear(64, 3))
    with torch.no_grad():
        model[0].bias -= 3  # silent on nearly every image of the example
    _, report = squeeze(model, images(8, count=2))
    assert report.removed_filters == 0
    assert report.undone == ()


def test_an_input_of_indices_varies_although_no_noise_shows_it() -> None:
    """One token per text: every embedding in the example is the same."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(10, 4), nn.Flatten(), nn.Linear(4, 6), nn.ReLU())
    model.append(nn.Linear(6, 3))
    small = compact(model, torch.tensor([[7]]))
    tokens = torch.arange(10)[:, None]
    assert compact_report(small).removed_filters == 0
    torch.testing.assert_close(outputs(small, tokens), outputs(model, tokens))


@pytest.mark.parametrize(
    "activation",
    [nn.PReLU(6), nn.PReLU(), nn.GELU(), nn.Hardswish(), nn.ELU(), nn.Tanh(), nn.Dropout(0.5)],
)
def test_activations_that_keep_zero(activation: nn.Module) -> None:
    model = nn.Sequential(conv(3, 6), activation, conv(6, 4), nn.Flatten(), nn.Linear(256, 3))
    kill(model, **{"0": [2, 3]})
    small, report = squeeze(model)
    assert small[0].weight.shape[0] == 4
    assert report.left == ()


def test_norms_over_all_channels_keep_everything_and_say_so() -> None:
    model = nn.Sequential(conv(3, 6), nn.GroupNorm(2, 6), conv(6, 4), nn.Flatten())
    model.append(nn.Linear(256, 3))
    kill(model, **{"0": [2]})
    _, report = squeeze(model)
    assert report["0"].filters_left == 6
    assert "GroupNorm" in report.left[0].reason


def test_the_output_keeps_its_shape() -> None:
    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 5))
    kill(model, **{"2": [1, 3], "0": [2]})
    small, report = squeeze(model, images(4))
    assert outputs(small, images(4)).shape == (6, 5)
    assert report.left[0].reason == "it is part of the network's output"
    assert report["0"].filters_left == 5


def test_shared_weights_and_second_calls() -> None:
    shared = conv(4, 4)
    model = nn.Sequential(conv(3, 4), nn.ReLU(), shared, nn.ReLU(), shared, nn.ReLU(), nn.Flatten())
    model.append(nn.Linear(256, 3))
    kill(model, **{"0": [1], "2": [1]})
    small, report = squeeze(model)
    # Filter 1 of the shared layer is also its input channel 1: all of it goes at once.
    assert small[2].weight.shape == (3, 3, 3, 3)
    assert small[2] is small[4]
    tied = nn.Sequential(conv(3, 4), conv(4, 4), nn.ReLU(), conv(4, 4), nn.Flatten())
    tied.append(nn.Linear(256, 3))
    tied[3].weight = tied[1].weight
    kill(tied, **{"1": [1]})
    _, report = squeeze(tied)
    assert report.removed_filters == 0
    assert "shares its weight" in report.left[0].reason


def test_a_layer_keeps_one_filter() -> None:
    model = Plain()
    kill(model, first=[0, 1, 2, 3])
    small, report = squeeze(model)
    assert small.first.weight.shape[0] == small.second.weight.shape[1] == 1
    assert "must keep one filter" in report.left[0].reason


@pytest.mark.parametrize("kind", [Plain, Residual, DenseBlock])
def test_batchnorm_folding(kind: type[nn.Module]) -> None:
    model = randomise_norms(kind())
    kill(model, **{"first" if kind is Plain else "stem": [1]})
    small, report = squeeze(model, fold_batchnorm=True)
    norms = [m for m in small.modules() if isinstance(m, nn.BatchNorm2d)]
    if kind is Residual:
        assert norms == []
        assert report.folded == ("bn", "a.bn1", "a.bn2", "b.bn1", "b.bn2")
    elif kind is DenseBlock:  # its norms stand before the convolutions and read a concatenation
        assert len(norms) == 4 - len(report.folded)
        assert len(report.notes) == len(norms)


def test_folding_notices_a_second_reader() -> None:
    def forward(net: Net, x: Tensor) -> Tensor:
        raw = net.conv(x)
        return net.fc(functional.relu(net.norm(raw) + raw).mean((2, 3)))

    model = Net(forward, conv=conv(3, 4), norm=nn.BatchNorm2d(4), fc=nn.Linear(4, 2))
    small, report = squeeze(randomise_norms(model), fold_batchnorm=True)
    assert report.folded == ()
    assert isinstance(small.norm, nn.BatchNorm2d)
    assert "'norm' was not folded into 'conv'" in report.notes[0]


def test_modes_flags_and_types_are_kept() -> None:
    model = Residual().double()
    model.a.eval()
    model.fc.weight.requires_grad_(False)
    kill(model, stem=[1], a__conv2=[1], b__conv2=[3])
    small = compact(model, X)
    assert small.training
    assert not small.a.training
    assert not small.a.bn1.training
    assert small.stem.weight.dtype == torch.float64
    assert not small.fc.weight.requires_grad
    assert small.stem.weight.requires_grad
    assert all(p.is_leaf for p in small.parameters())


def test_a_compacted_network_trains() -> None:
    model = Plain()
    kill(model, first=[1], second=[0])
    small = compact(model, X)
    before = small.second.weight.clone()
    optimizer = torch.optim.SGD(small.parameters(), lr=0.1)
    small(X).square().sum().backward()
    optimizer.step()
    assert not torch.equal(before, small.second.weight)


def test_dict_batches_and_a_forward_function() -> None:
    model = Plain()
    kill(model, first=[1])
    batch = {"pixels": X, "labels": torch.zeros(6, dtype=torch.long)}
    small = compact(model, batch, forward=lambda net, b: {"out": net(b["pixels"])})
    assert small.first.weight.shape[0] == 3


def test_errors_say_what_to_do() -> None:
    with pytest.raises(InputError, match="very object that"):
        compact_report(Plain())
    noisy = Net(lambda net, x: net.fc(x.flatten(1) + torch.rand(1)), fc=nn.Linear(192, 3))
    with pytest.raises(ModelError, match="deterministic"):
        compact(noisy, X)
    model = Plain()
    model.lock = (i for i in range(3))  # what cannot be copied
    with pytest.raises(InputError, match="cannot be copied"):
        compact(model, X)


def test_a_report_survives_neither_copies_nor_its_network() -> None:
    small = compact(Plain(), X)
    assert compact_report(small).removed_filters == 0
    with pytest.raises(InputError):
        compact_report(copy.deepcopy(small))


@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    share=st.floats(0.1, 0.95),
    kind=st.sampled_from([Plain, Residual, Grouped, DenseBlock, Inception]),
)
def test_any_masks_on_any_toy(seed: int, share: float, kind: type[nn.Module]) -> None:
    """Random connections go; what remains computes the same, and never counts more than cost."""
    torch.manual_seed(seed)
    x = images(*getattr(kind, "image", (3, 8, 8)), count=2, seed=seed)
    model = randomise_norms(kind(), seed)
    structure = find_structure(model, x)
    random = np.random.default_rng(seed)
    masks = {
        layer.name: random.random((layer.c_out, layer.c_in)) > share for layer in structure.prunable
    }
    for mask in masks.values():
        mask[0, 0] = True
    apply_(model, masks, structure=structure)
    bake_(model)
    _, report = squeeze(model, x)
    counted = cost(structure, masks)
    # The experiment can see more than the masks say: a shift that no ReLU lets through. But where
    # nothing at all is left of a layer, one filter stays, with what it reads.
    if all(row.filters_left for row in counted.layers):
        for mine, other in zip(report.layers, counted.layers, strict=True):
            assert mine.filters_left <= other.filters_left
    assert report.undone == ()

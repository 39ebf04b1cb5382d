"""Costs against networks that carry their own answer key; compaction by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional
from toynets import Grouped, Net, Plain, Residual, conv, images, randomise_norms

from snacs.errors import InputError
from snacs.network.cost import accuracy, cost, csr_bytes, index_width
from snacs.network.layers import find_structure
from snacs.network.masking import apply_, bake_
from snacs.network.shrink import shrink
from snacs.values import BoolArray, Structure

X = images(3, 8, 8)
RESIDUAL = find_structure(Residual(), X, keep_first=False)


def full(structure: Structure) -> dict[str, BoolArray]:
    return {layer.name: np.ones((layer.c_out, layer.c_in), bool) for layer in structure}


@pytest.mark.parametrize("kind", [Plain, Residual, Grouped])
def test_dense_networks_cost_what_their_key_says(kind: type[Plain]) -> None:
    structure = find_structure(kind(), images(*kind.image))
    dense = cost(structure)
    assert (dense.weights, dense.weights_kept) == (kind.weights, kind.weights)
    assert (dense.macs, dense.macs_kept, dense.macs_compacted) == (kind.macs,) * 3
    assert dense.pruned == 0.0
    assert dense.dense_bytes == 4 * kind.weights


def test_kept_kernels_only() -> None:
    structure = find_structure(Plain(), X)
    keep = np.ones((6, 4), dtype=bool)
    keep[0, :3] = False  # 3 of 24 kernels, no filter dies
    found = cost(structure, {"second": keep})
    assert found["second"].weights_kept == 21 * 9
    assert found["second"].pruned == pytest.approx(3 / 24)
    assert found.macs_kept == Plain.macs - 3 * 9 * 64
    assert found.macs_compacted == Plain.macs
    assert found.pruned == pytest.approx(27 / Plain.weights)


def test_csr_bytes_by_hand() -> None:
    structure = find_structure(Plain(), X)
    keep = np.zeros((6, 4), dtype=bool)
    keep[:, 0] = True  # 6 kernels of 9
    row = cost(structure, {"second": keep})["second"]
    assert row.csr_bytes == 54 * 8 + 7 * 4
    assert row.csr_bytes_narrow == 54 * 5 + 7 * 4  # 36 columns fit a byte
    assert row.index_bytes == 1
    assert cost(structure).index_bytes == (1,)


@pytest.mark.parametrize(("columns", "width"), [(256, 1), (257, 2), (65536, 2), (65537, 4)])
def test_index_width(columns: int, width: int) -> None:
    assert index_width(columns) == width
    assert csr_bytes(1, columns, 5, narrow=True) == 5 * (4 + width) + 8


def test_dead_filters_take_their_readers_columns_along() -> None:
    structure = find_structure(Plain(), X)
    keep = np.ones((6, 4), dtype=bool)
    keep[2] = keep[5] = False
    found = cost(structure, {"second": keep})
    assert found["second"].filters_left == 4
    assert found["second"].macs_compacted == 4 * 4 * 9 * 64
    assert found["head"].macs_compacted == 10 * 4 * 16
    assert found["head"].macs_kept == 10 * 6 * 16


def test_filters_that_nobody_reads_go_upstream() -> None:
    structure = find_structure(Plain(), X)
    keep = np.ones((6, 4), dtype=bool)
    keep[:, 1] = False
    found = cost(structure, {"second": keep})
    assert found["first"].filters_left == 3
    assert found["first"].macs_compacted == 3 * 3 * 9 * 64
    assert found["second"].macs_compacted == 6 * 3 * 9 * 64


def test_a_residual_stream_goes_only_as_a_whole() -> None:
    structure = find_structure(Residual(), X)
    keep = full(structure)
    keep["a.conv2"][1] = False
    alone = shrink(structure, keep)
    assert alone.filters["a.conv2"].all()  # the stem still speaks in its channel
    keep["b.conv2"][5] = False
    assert shrink(structure, keep).filters["b.conv2"].all()  # shares channel 5 with filter 3
    keep["b.conv2"][0] = False  # channels 0, 1, 6, 7 of the shortcut are padding
    left = shrink(structure, keep)
    assert left.filters["b.conv2"].tolist() == [False] + [True] * 7
    assert left.channels["fc"].tolist() == [False] + [True] * 7


def test_a_whole_stream_that_is_silent_goes_everywhere() -> None:
    structure = find_structure(Residual(), X)
    keep = full(structure)
    for name, row in (("stem", 1), ("a.conv2", 1), ("b.conv2", 3)):
        keep[name][row] = False
    left = shrink(structure, keep)
    assert left.filters["stem"].tolist() == [True, False, True, True]
    assert left.channels["a.conv1"].tolist() == left.channels["b.conv1"].tolist()
    assert left.channels["b.conv1"].tolist() == [True, False, True, True]
    assert left.channels["fc"].tolist() == [True] * 3 + [False] + [True] * 4


def test_cascades_end_at_biases_and_norms() -> None:
    """Without bias and norm a filter without living inputs is 0 and goes; otherwise it stays."""
    for bias, norm, gone in ((False, False, True), (True, False, False), (False, True, False)):
        net = Net(
            lambda net, x: net.c(net.bn(net.b(functional.relu(net.a(x))))),
            a=conv(3, 4, bias=False),
            b=conv(4, 4, bias=bias),
            bn=nn.BatchNorm2d(4) if norm else nn.Identity(),
            c=conv(4, 2),
        )
        structure = find_structure(net, X)
        keep = full(structure)
        keep["a"][0] = False
        keep["b"][2, 1:] = False  # filter 2 reads only the dead filter 0
        left = shrink(structure, keep)
        assert left.filters["a"].tolist() == [False, True, True, True]
        assert bool(left.filters["b"][2]) == (not gone)


def test_groups_stay_and_depthwise_follows_its_stream() -> None:
    structure = find_structure(Grouped(), images(3, 4, 4))
    keep = full(structure)
    keep["group"][0] = False
    assert shrink(structure, keep).filters["group"].all()
    net = nn.Sequential(conv(3, 4), conv(4, 4, groups=4), conv(4, 4), conv(4, 2))
    structure = find_structure(net, X)
    keep = full(structure)
    keep["2"][:, 1] = False  # nobody reads depthwise filter 1
    left = shrink(structure, keep)
    assert left.filters["1"].tolist() == [True, False, True, True]
    assert left.filters["0"].tolist() == [True, False, True, True]
    assert cost(structure, keep)["1"].macs_compacted == 3 * 9 * 64


@pytest.mark.parametrize(
    "between", [nn.GroupNorm(2, 4), nn.Sigmoid(), nn.Softmax(1), nn.ConvTranspose2d(4, 4, 1)]
)
def test_nothing_goes_where_zeros_do_not_stay_zeros(between: nn.Module) -> None:
    net = nn.Sequential(conv(3, 4), conv(4, 4), between, conv(4, 4), conv(4, 2))
    structure = find_structure(net, X)
    keep = full(structure)
    keep["1"][0] = False
    keep["3"][:, 2] = False
    left = shrink(structure, keep)
    assert left.filters["1"].all()
    assert left.channels["3"].all()


def test_a_channel_that_also_carries_the_input_stays() -> None:
    net = Net(lambda net, x: net.c(net.b(x + net.a(x))), a=conv(3, 3), b=conv(3, 4), c=conv(4, 2))
    structure = find_structure(net, X, keep_first=False)
    keep = full(structure)
    keep["a"][1] = False
    left = shrink(structure, keep)
    assert left.channels["b"].all()
    assert left.filters["a"].all()


def test_output_filters_stay() -> None:
    structure = find_structure(Plain(), X, keep_last=False)
    keep = full(structure)
    keep["head"][3] = False
    assert shrink(structure, keep).filters["head"].all()


@settings(deadline=None, max_examples=25)
@given(seed=st.integers(0, 10_000), share=st.floats(0.1, 0.9))
def test_taking_streams_out_leaves_the_output_unchanged(seed: int, share: float) -> None:
    """Zeroing all weights that compaction removes must not change what the network says."""
    net = randomise_norms(Residual(), seed).eval()
    structure = RESIDUAL
    stream = np.random.default_rng(seed)
    keep = {}
    for layer in structure.prunable:
        mask = stream.random((layer.c_out, layer.c_in)) > share
        mask[stream.random(layer.c_out) < share / 2] = False
        mask[:, stream.random(layer.c_in) < share / 2] = False
        keep[layer.name] = mask
    left = shrink(structure, keep)
    apply_(net, keep, structure=structure)
    with torch.no_grad():
        expected = net(X)
    bake_(net)
    with torch.no_grad():
        for layer in structure:
            here = left.filters[layer.name][:, None] & left.channels[layer.name][None, :]
            weight = net.get_submodule(layer.name).weight
            weight[~torch.from_numpy(here)] = 0
        for norm in structure.norms:
            gone = torch.from_numpy(~left.filters[norm.feeds[0].source])
            net.get_submodule(norm.name).weight[gone] = 0
            net.get_submodule(norm.name).bias[gone] = 0
        np.testing.assert_allclose(net(X), expected, atol=1e-5)  # sums in another order


@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 10_000), share=st.floats(0.0, 1.0))
def test_costs_are_ordered(seed: int, share: float) -> None:
    structure = RESIDUAL
    stream = np.random.default_rng(seed)
    keep = {
        layer.name: stream.random((layer.c_out, layer.c_in)) > share for layer in structure.prunable
    }
    found = cost(structure, keep)
    assert found.macs_kept <= found.macs
    assert found.macs_compacted <= found.macs
    assert found.csr_bytes_narrow <= found.csr_bytes
    assert 0 <= found.pruned <= 1
    assert found.weights_kept == sum(
        int(keep[row.name].sum()) * structure[row.name].kernel if row.name in keep else row.weights
        for row in found.layers
    )


def test_masks_that_do_not_fit_are_refused() -> None:
    structure = find_structure(Plain(), X)
    with pytest.raises(InputError, match=r"'second' must have the shape.*\(6, 4\).*\(4, 6\)"):
        cost(structure, {"second": np.ones((4, 6), bool)})
    with pytest.raises(InputError, match="'third', which is no layer"):
        cost(structure, {"third": np.ones((4, 6), bool)})
    with pytest.raises(KeyError):
        cost(structure)["third"]


def test_accuracy_by_hand() -> None:
    net = nn.Sequential(nn.Identity()).train()
    scores = torch.eye(4)
    labels = torch.tensor([0, 1, 2, 0])
    seen: list[int] = []
    found = accuracy(net, [(scores, labels), (scores[:2], labels[:2])], progress=seen.append)
    assert found.fraction == pytest.approx(5 / 6)
    assert found.n == 6
    assert found.error == pytest.approx(math.sqrt(5 / 6 * (1 / 6) / 6))
    assert seen == [4, 6]
    assert net.training


def test_nan_scores_are_wrong() -> None:
    scores = torch.tensor([[float("nan"), 0.0], [1.0, 0.0]])
    assert accuracy(nn.Identity(), [(scores, torch.tensor([0, 0]))]).fraction == 0.5


def test_accuracy_needs_labelled_images() -> None:
    with pytest.raises(InputError, match="needs labels"):
        accuracy(nn.Identity(), [torch.eye(3)])
    with pytest.raises(InputError, match="no images"):
        accuracy(nn.Identity(), [])


def test_accuracy_through_forward() -> None:
    def forward(model: nn.Module, batch: tuple[Tensor, Tensor]) -> dict[str, Tensor]:
        return {"logits": -model(batch[0])}

    batch = (torch.eye(2), torch.tensor([1, 0]))
    assert accuracy(nn.Identity(), [batch], forward=forward).fraction == 1.0


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_accuracy_on_cuda() -> None:
    net = nn.Linear(3, 2).cuda()
    assert accuracy(net, [(torch.randn(4, 3), torch.zeros(4).long())]).n == 4

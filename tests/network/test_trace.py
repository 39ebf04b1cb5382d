"""Who feeds whom, for every kind of wiring: hand-made nets with known answers."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from toynets import Net, Residual, conv, hooks_on, images, randomise_norms, segment

from snacs.errors import InputError, ModelError
from snacs.network.sources import columns_per_channel, segments
from snacs.network.trace import Trace, is_addition, trace
from snacs.values import MIXED, NETWORK_INPUT, Segment, Sum

X = images(3, 8, 8)


def feeds(found: Trace, name: str) -> tuple[Segment, ...]:
    return next(layer.feeds for layer in found.layers if layer.name == name)


def consumers(found: Trace, name: str) -> list[str]:
    return next(layer.consumers for layer in found.layers if layer.name == name)


def test_residual_sums_carry_both_branches_and_padding_shifts_channels() -> None:
    found = trace(Residual(), X)
    assert feeds(found, "stem") == (segment(NETWORK_INPUT, 0, 0, 3),)
    assert feeds(found, "a.conv1") == (segment("stem", 0, 0, 4),)
    assert feeds(found, "b.conv1") == (segment("a.conv2", 0, 0, 4), segment("stem", 0, 0, 4))
    assert set(feeds(found, "fc")) == {
        segment("b.conv2", 0, 0, 8),
        segment("a.conv2", 0, 2, 4),  # 2 zero channels were padded on each side
        segment("stem", 0, 2, 4),
    }
    assert consumers(found, "stem") == ["a.conv1", "b.conv1", "fc"]
    assert found.outputs == (segment("fc", 0, 0, 10),)


def test_norms_know_their_filters() -> None:
    norms = {norm.name: norm for norm in trace(Residual(), X).norms}
    assert list(norms) == ["bn", "a.bn1", "a.bn2", "b.bn1", "b.bn2"]
    assert norms["b.bn2"].feeds == (segment("b.conv2", 0, 0, 8),)
    assert (norms["bn"].kind, norms["bn"].channels, norms["bn"].affine) == ("BatchNorm2d", 4, True)


def test_a_norm_behind_a_concatenation_has_offsets() -> None:
    def forward(net: Net, x: Tensor) -> Tensor:
        return net.last(net.bn(torch.cat([net.a(x), net.b(x)], 1)))

    net = Net(forward, a=conv(3, 2), b=conv(3, 5), bn=nn.BatchNorm2d(7), last=conv(7, 3))
    found = trace(net, X)
    expected = (segment("a", 0, 0, 2), segment("b", 0, 2, 5))
    assert found.norms[0].feeds == expected
    assert feeds(found, "last") == expected


def test_dense_connections_and_the_raw_input() -> None:
    def forward(net: Net, x: Tensor) -> Tensor:
        a = functional.relu(net.a(x))
        b = functional.gelu(net.b(a))
        return net.c(torch.cat((x, b, a), dim=1))

    found = trace(Net(forward, a=conv(3, 2), b=conv(2, 4), c=conv(9, 5)), X)
    assert feeds(found, "c") == (
        segment(NETWORK_INPUT, 0, 0, 3),
        segment("b", 0, 3, 4),
        segment("a", 0, 7, 2),
    )
    assert consumers(found, "a") == ["b", "c"]


@pytest.mark.parametrize("way", ["index", "chunk", "split", "narrow", "index_select", "unbind"])
def test_slices_of_channels(way: str) -> None:
    def forward(net: Net, x: Tensor) -> Tensor:
        y = net.a(x)
        part = {
            "index": lambda: y[:, 3:],
            "chunk": lambda: y.chunk(2, dim=1)[1],
            "split": lambda: torch.split(y, [3, 3], 1)[1],
            "narrow": lambda: y.narrow(1, 3, 3),
            "index_select": lambda: y.index_select(1, torch.tensor([3, 4, 5])),
            "unbind": lambda: torch.stack(y.unbind(1)[3:], dim=1),
        }[way]()
        return net.b(part)

    found = trace(Net(forward, a=conv(3, 6), b=conv(3, 2)), X)
    assert feeds(found, "b") == (segment("a", 3, 0, 3),)


def test_channel_shuffle_is_followed_filter_by_filter() -> None:
    def forward(net: Net, x: Tensor) -> Tensor:
        y = net.a(x)
        n, c, h, w = y.shape
        y = y.view(n, 2, c // 2, h, w).transpose(1, 2).reshape(n, c, h, w)
        return net.b(y)

    found = trace(Net(forward, a=conv(3, 4), b=conv(4, 2)), X)
    assert feeds(found, "b") == tuple(segment("a", f, c, 1) for c, f in enumerate((0, 2, 1, 3)))


def test_squeeze_and_excite_couples_gate_and_stream() -> None:
    def forward(net: Net, x: Tensor) -> Tensor:
        y = net.a(x)
        gate = torch.sigmoid(net.up(functional.relu(net.down(y.mean((2, 3))))))
        return net.b(y * gate[:, :, None, None])

    net = Net(forward, a=conv(3, 4), down=nn.Linear(4, 2), up=nn.Linear(2, 4), b=conv(4, 5))
    found = trace(net, X)
    assert feeds(found, "down") == (segment("a", 0, 0, 4),)
    # A product is 0 where the stream is: sigmoid(0) = 1/2 does not make it unknown.
    assert feeds(found, "b") == (segment("a", 0, 0, 4), segment("up", 0, 0, 4))


@pytest.mark.parametrize(
    ("function", "unknown"),
    [
        (functional.relu, False),
        (functional.silu, False),
        (functional.leaky_relu, False),
        (lambda x: functional.relu6(x, inplace=True), False),
        (lambda x: functional.dropout(x, 0.5, training=False), False),
        (lambda x: functional.interpolate(x, scale_factor=2.0), False),
        (lambda x: functional.avg_pool2d(x, 2), False),
        (lambda x: functional.max_pool2d(x, 2), False),
        (lambda x: x.double().float() / 255, False),
        (lambda x: x.clamp(min=-1, max=1), False),
        (torch.sigmoid, True),
        (lambda x: x + 1, True),
        (lambda x: x.clamp(min=0.5), True),
        (lambda x: functional.pad(x, (1, 1, 1, 1), value=3.0), True),
        (lambda x: torch.softmax(x, dim=3), True),
    ],
)
def test_what_does_not_keep_zeros_is_marked(function: object, unknown: bool) -> None:
    net = Net(lambda net, x: net.b(function(net.a(x))), a=conv(3, 4), b=conv(4, 2))
    exact = segment("a", 0, 0, 4)
    expected = {exact, segment(MIXED, 0, 0, 4)} if unknown else {exact}
    assert set(feeds(trace(net, X), "b")) == expected


def test_a_trained_offset_is_unknown_even_while_it_is_zero() -> None:
    net = Net(
        lambda net, x: net.b(net.a(x) + net.shift),
        a=conv(3, 4),
        b=conv(4, 2),
        shift=nn.Parameter(torch.zeros(1, 4, 1, 1)),
    )
    assert segment(MIXED, 0, 0, 4) in feeds(trace(net, X), "b")


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.einsum("nchw,cd->ndhw", x, torch.eye(4)),
        lambda x: torch.fft.fft(x, dim=1).real,
        lambda x: torch.softmax(x, dim=1),
        lambda x: x.matmul(x),
        lambda x: torch.from_numpy(x.numpy()),
        lambda x: torch.tensor(x.tolist()),
        lambda x: x - x.mean(1, keepdim=True),
    ],
)
def test_what_cannot_be_followed_is_mixed_but_still_read(function: object) -> None:
    net = Net(lambda net, x: net.b(function(net.a(x))), a=conv(3, 4), b=conv(4, 2))
    found = trace(net, X)
    assert segment(MIXED, 0, 0, 4) in feeds(found, "b")
    assert consumers(found, "a") == ["b"]


def test_flatten_makes_the_columns_of_a_channel_one_connection() -> None:
    for flatten in (
        lambda x: torch.flatten(x, 1),
        lambda x: x.view(x.shape[0], -1),
        lambda x: x.reshape(len(x), 4, 64).reshape(len(x), 256),
        lambda x: functional.relu(nn.Flatten()(x)),
    ):
        net = Net(lambda net, x, f=flatten: net.fc(f(net.a(x))), a=conv(3, 4), fc=nn.Linear(256, 2))
        layer = trace(net, X).layers[1]
        assert layer.kernel == 64
        assert layer.feeds == (segment("a", 0, 0, 4),)


def test_channels_last_flatten_keeps_single_columns() -> None:
    net = Net(
        lambda net, x: net.fc(net.a(x).permute(0, 2, 3, 1).flatten(1)),
        a=conv(3, 4),
        fc=nn.Linear(256, 2),
    )
    layer = trace(net, X).layers[1]
    assert layer.kernel == 1
    assert layer.feeds == tuple(segment("a", 0, 4 * i, 4) for i in range(64))


def test_flattened_input_is_not_one_connection() -> None:
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 5), nn.Linear(5, 2))
    assert trace(net, images(1, 8, 8)).layers[0].kernel == 1


def test_linear_on_channels_last_maps_and_layer_norm() -> None:
    def forward(net: Net, x: Tensor) -> Tensor:
        y = net.a(x)
        z = net.norm(y.permute(0, 2, 3, 1))
        return net.head((y + net.up(net.down(z)).permute(0, 3, 1, 2)).mean((2, 3)))

    net = Net(
        forward,
        a=conv(3, 4),
        norm=nn.LayerNorm(4),
        down=nn.Linear(4, 8),
        up=nn.Linear(8, 4),
        head=nn.Linear(4, 2),
    )
    found = trace(net, X)
    # A norm over all channels keeps their order, but no channel is 0 when its filter is.
    assert feeds(found, "down") == (segment(MIXED, 0, 0, 4), segment("a", 0, 0, 4))
    assert feeds(found, "head") == (segment("a", 0, 0, 4), segment("up", 0, 0, 4))
    assert found.norms[0].feeds == (segment("a", 0, 0, 4),)


def test_writing_into_a_buffer_is_followed() -> None:
    def forward(net: Net, x: Tensor) -> Tensor:
        y = net.a(x)
        z = torch.zeros(y.shape[0], 6, 8, 8)
        z[:, 1:5] = y
        return net.b(z)

    found = trace(Net(forward, a=conv(3, 4), b=conv(6, 2)), X)
    assert feeds(found, "b") == (segment("a", 0, 1, 4),)


def test_writing_through_a_view_reaches_what_shares_its_memory() -> None:
    def forward(net: Net, x: Tensor) -> Tensor:
        y = net.a(x)
        y[:, :2].add_(net.b(x))
        return net.c(y)

    found = trace(Net(forward, a=conv(3, 4), b=conv(3, 2), c=conv(4, 2)), X)
    assert segment("a", 0, 0, 4) in feeds(found, "c")
    assert segment(MIXED, 0, 0, 4) in feeds(found, "c")
    assert consumers(found, "b") == ["c"]


def test_module_called_twice_merges_feeds_and_counts_calls() -> None:
    net = Net(
        lambda net, x: net.c(net.b(functional.relu(net.b(net.a(x))))),
        a=conv(3, 4),
        b=conv(4, 4),
        c=conv(4, 2),
    )
    found = trace(net, X)
    shared = found.layers[1]
    assert shared.feeds == (segment("a", 0, 0, 4), segment("b", 0, 0, 4))
    assert (len(shared.columns), shared.outputs) == (2, 6 * 64 * 2)
    assert shared.consumers == ["b", "c"]


def test_sums_are_numbered_and_name_layer_norm_and_side() -> None:
    found = trace(Residual(), X)
    assert found.sums == (
        Sum(0, "a.conv2", 0, "a.bn2", rectified=True),
        Sum(1, "b.conv2", 0, "b.bn2", rectified=True),
    )


def test_sums_count_every_addition_as_another_mode_would() -> None:
    def forward(net: Net, x: Tensor) -> Tensor:
        x = x + 1
        y = torch.add(net.a(x), x, alpha=2)  # scaled: counted, no plain sum
        y = 1 + y
        return y.add(net.bn(net.b(y)))

    class Count(TorchFunctionMode):
        seen = 0

        def __torch_function__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            self.seen += is_addition(func)
            return func(*args, **(kwargs or {}))

    net = Net(forward, a=conv(3, 3), b=conv(3, 3), bn=nn.BatchNorm2d(3)).eval()
    with torch.no_grad(), Count() as count:
        net(X)
    assert trace(net, X).sums == (Sum(count.seen - 1, "b", 1, "bn"),)
    assert count.seen == 4


def test_a_stream_made_from_the_layer_itself_is_no_sum() -> None:
    def forward(net: Net, x: Tensor) -> Tensor:
        y = net.a(x)
        return y + net.b(y)

    assert trace(Net(forward, a=conv(3, 4), b=conv(4, 4)), X).sums == (Sum(0, "b", 1, None),)


@pytest.mark.parametrize("in_place", [True, False])
def test_an_activation_on_the_way_makes_it_no_sum(in_place: bool) -> None:
    def forward(net: Net, x: Tensor) -> Tensor:
        return x + functional.relu(net.bn(net.a(x)), inplace=in_place)

    assert trace(Net(forward, a=conv(3, 3), bn=nn.BatchNorm2d(3)), X).sums == ()


def test_a_view_written_in_place_makes_it_no_sum() -> None:
    def forward(net: Net, x: Tensor) -> Tensor:
        y = net.a(x)
        y[:, 1:].relu_()
        return x + y

    assert trace(Net(forward, a=conv(3, 3)), X).sums == ()


def test_trying_a_function_out_does_not_write_into_constants() -> None:
    kept: list[Tensor] = []

    def forward(net: Net, x: Tensor) -> Tensor:
        buffer = torch.empty(2, 4, 8, 8)
        buffer.copy_(net.a(x))
        kept.append(buffer)
        return net.b(buffer)

    net = Net(forward, a=conv(3, 4), b=conv(4, 2)).eval()
    found = trace(net, X[:2])
    with torch.no_grad():
        assert torch.equal(kept[0], net.a(X[:2]))
    assert segment("a", 0, 0, 4) in feeds(found, "b")


def test_blended_outputs_still_name_their_layer() -> None:
    net = Net(lambda net, x: functional.log_softmax(net.fc(x.mean((2, 3))), 1), fc=nn.Linear(3, 5))
    found = trace(net, X)
    assert set(found.outputs) == {segment(MIXED, 0, 0, 5), segment("fc", 0, 0, 5)}
    assert found.heads == (frozenset({"fc"}),)


def test_dict_batches_keyword_inputs_and_dict_outputs() -> None:
    def forward(net: Net, *, image: Tensor, extra: Tensor) -> dict[str, Tensor]:
        y = torch.cat([net.a(image).mean((2, 3)), net.e(extra)], 1)
        return {"logits": net.fc(y), "features": y}

    net = Net(forward, a=conv(3, 4), e=nn.Linear(5, 2), fc=nn.Linear(6, 3))
    batch = {"image": X, "extra": images(5), "labels": torch.zeros(6, dtype=torch.long)}
    found = trace(net, batch)
    assert feeds(found, "fc") == (segment("a", 0, 0, 4), segment("e", 0, 4, 2))
    assert found.heads == (frozenset({"fc"}), frozenset({"a", "e"}))
    by_function = trace(net, [X, images(5)], forward=lambda m, b: m(image=b[0], extra=b[1]))
    assert by_function.outputs == found.outputs


def test_weights_used_by_another_module_are_noticed() -> None:
    net = Net(
        lambda net, x: functional.linear(net.b(x), net.a.weight),
        a=nn.Linear(4, 3),
        b=nn.Linear(5, 4),
    )
    assert trace(net, images(5)).borrowed == {"a"}


def test_tracing_changes_nothing() -> None:
    net = randomise_norms(Residual())
    net.train()
    net.a.eval()
    before = {key: value.clone() for key, value in net.state_dict().items()}
    hooks = hooks_on(net)
    trace(net, X)
    assert all(torch.equal(value, before[key]) for key, value in net.state_dict().items())
    assert hooks_on(net) == hooks == 0
    assert (net.training, net.a.training, net.a.conv1.training) == (True, False, False)


def test_hooks_are_gone_after_a_bad_batch() -> None:
    net = Residual().train()
    with pytest.raises(ModelError, match=r"float32\(2, 5, 8, 8\)"):
        trace(net, images(5, 8, 8, count=2))
    assert hooks_on(net) == 0
    assert net.training


def test_hooks_are_gone_after_a_forward_that_raises() -> None:
    def forward(net: Net, x: Tensor) -> Tensor:
        net.a(x)
        raise KeyError("inside the network")

    net = Net(forward, a=conv(3, 4))
    with pytest.raises(ModelError, match="inside the network"):
        trace(net, X)
    assert hooks_on(net) == 0


def test_lazy_modules_are_refused_before_they_are_filled() -> None:
    net = Net(lambda net, x: net.a(x), a=nn.LazyLinear(3))
    hooks = hooks_on(net)
    with pytest.raises(InputError, match=r"'a'.*no weights yet"):
        trace(net, images(5))
    assert net.a.has_uninitialized_params()
    assert hooks_on(net) == hooks


def test_foreign_autograd_functions_are_seen_through() -> None:
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):  # type: ignore[no-untyped-def]
            return x * 2

    net = Net(lambda net, x: net.b(Double.apply(net.a(x))), a=conv(3, 4), b=conv(4, 2))
    assert feeds(trace(net, X), "b") == (segment("a", 0, 0, 4),)


def test_segments_follow_diagonals() -> None:
    columns = [frozenset({("a", 1), ("b", 0)}), frozenset({("a", 2)}), frozenset({("a", 2)})]
    assert segments(columns) == (
        segment("a", 1, 0, 2),
        segment("b", 0, 0, 1),
        segment("a", 2, 2, 1),
    )


def test_columns_per_channel_needs_equal_exact_runs() -> None:
    a, b, unknown = frozenset({("a", 0)}), frozenset({("a", 1)}), frozenset({(MIXED, -1)})
    assert columns_per_channel([a, a, b, b]) == 2
    assert columns_per_channel([a, a, b]) == 1
    assert columns_per_channel([a, b, a, b]) == 1
    assert columns_per_channel([a, a, b, b, a, a]) == 1
    assert columns_per_channel([unknown] * 4) == 1


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_trace_on_cuda_equals_trace_on_cpu() -> None:
    assert trace(Residual().cuda(), X).outputs == trace(Residual(), X).outputs

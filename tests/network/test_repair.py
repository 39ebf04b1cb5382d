"""Repair brings outputs back, touches only what it may, and leaves nothing behind."""

from __future__ import annotations

import copy
import threading

import numpy as np
import pytest
import torch
from torch import nn

from snacs.errors import InputError, ModelError
from snacs.network import holding, masking, moments, tasks
from snacs.network.batchnorm import reestimate_
from snacs.network.layers import find_structure
from snacs.network.reasons import LAST
from snacs.network.repair import repair_
from snacs.values import Layer, Structure


@pytest.fixture(autouse=True)
def one_thread():
    """Layers this small only lose by more threads, on busy machines a lot."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


class Residual(nn.Module):
    """Two blocks; in the first the shortcut has a layer, computed after the branch."""

    def __init__(self, width=8):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(width)
        self.conv1 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.down = nn.Conv2d(width, width, 1)
        self.conv3 = nn.Conv2d(width, width, 3, padding=1)
        self.conv4 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn4 = nn.BatchNorm2d(width)
        self.fc = nn.Linear(width, 5)

    def forward(self, x):
        x = torch.relu(self.bn(self.stem(x)))
        y = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
        y = y + self.down(x)
        x = torch.relu(y)
        y = self.bn4(self.conv4(torch.relu(self.conv3(x))))
        y += x
        return self.fc(torch.relu(y).mean((2, 3)))


class Concat(nn.Module):
    """Two branches side by side, then a grouped convolution; a Linear behind a Flatten."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 6, 3, padding=1)
        self.left = nn.Conv2d(6, 4, 3, padding=1, bias=False)
        self.right = nn.Conv2d(6, 4, 1)
        self.bn = nn.BatchNorm2d(8)
        self.grouped = nn.Conv2d(8, 8, 3, stride=2, groups=2)
        self.hidden = nn.Linear(8 * 9, 10)
        self.fc = nn.Linear(10, 5)

    def forward(self, x):
        x = torch.relu(self.stem(x))
        x = torch.relu(self.bn(torch.cat([self.left(x), self.right(x)], 1)))
        x = torch.relu(self.grouped(x)).flatten(1)
        return self.fc(torch.relu(self.hidden(x)))


def images(count=60, seed=1):
    return torch.randn(count, 3, 8, 8, generator=torch.Generator().manual_seed(seed))


def trained_like(kind, seed=0):
    """A network with uneven weights and lived-in BatchNorm statistics."""
    torch.manual_seed(seed)
    model = kind()
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.weight.uniform_(0.5, 1.5)
                module.bias.normal_(0, 0.2)
    reestimate_(model, [images(seed=7)])
    return model.eval()


def pruned(kind, share=0.4, seed=0):
    dense = trained_like(kind, seed)
    structure = find_structure(dense, images(4))
    rng = np.random.default_rng(seed)
    masks = {}
    for layer in structure.prunable:
        weight = dense.get_submodule(layer.name).weight.detach()
        size = weight.reshape(layer.c_out, layer.c_in, -1).norm(dim=2).numpy()
        masks[layer.name] = size >= np.quantile(size, share) * rng.uniform(0.8, 1.2, size.shape)
    model = copy.deepcopy(dense)
    masking.apply_(model, masks, structure=structure)
    return dense, model, structure, masks


BATCHES = [images()[:25], images()[25:50], images()[50:]]
KINDS = pytest.mark.parametrize("kind", [Residual, Concat])


def output_error(dense, model, x):
    with torch.no_grad():
        return float((dense(x) - model(x)).square().sum() / dense(x).square().sum())


@pytest.mark.parametrize("refine", [True, False])
@KINDS
def test_outputs_come_closer_on_calibration_and_on_new_images(kind, refine):
    dense, model, structure, _ = pruned(kind)
    new = images(200, seed=9)
    before = output_error(dense, model, images()), output_error(dense, model, new)
    report = repair_(model, BATCHES, structure=structure, refine=refine)
    assert output_error(dense, model, images()) < 0.6 * before[0]
    assert output_error(dense, model, new) < before[1]
    assert report.after < report.before
    treated = {la.name for la in structure if la.prunable or (refine and la.kept_because == LAST)}
    assert {layer.name for layer in report.layers} == treated
    if not refine:
        assert all(layer.after <= layer.before + 1e-6 for layer in report.layers)
    assert report.images == 60


@KINDS
def test_only_kept_weights_offsets_and_statistics_change(kind):
    dense, model, structure, masks = pruned(kind)
    repair_(model, BATCHES, structure=structure, refine=False, batchnorm=False, logits=False)
    for name, keep in masks.items():
        module = model.get_submodule(name)
        shape = (*keep.shape, -1)
        hidden = masking.original_of(module).detach().reshape(shape)
        before = dense.get_submodule(name).weight.detach().reshape(shape)
        assert torch.equal(hidden[~keep], before[~keep])
        assert not module.weight.detach().reshape(shape)[~keep].any()
        assert not torch.equal(hidden[keep], before[keep])
        assert bool(masking.mask_of(module).repaired)
    for name in ("stem.weight", "fc.weight", "fc.bias"):
        assert torch.equal(model.state_dict()[name], dense.state_dict()[name])


def test_refining_solves_the_classifier_unless_it_was_to_be_left_alone():
    dense, model, structure, _ = pruned(Residual)
    twin = copy.deepcopy(model)
    repair_(model, BATCHES, structure=structure, batchnorm=False)
    assert not torch.equal(model.fc.weight, dense.fc.weight)
    left = find_structure(dense, images(4), ignore=["fc"])
    repair_(twin, BATCHES, structure=left, batchnorm=False)
    assert torch.equal(twin.fc.weight, dense.fc.weight)
    for network in (model, twin):
        assert torch.equal(network.stem.weight, dense.stem.weight)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_refining_brings_outputs_closer_than_plain_least_squares(seed):
    dense, model, structure, _ = pruned(Residual, share=0.6, seed=seed)
    twin = copy.deepcopy(model)
    # enough images that 8 channels x 9 taps are not fitted to them by heart
    batches = list(images(600, seed=4).split(100))
    repair_(model, batches, structure=structure, batchnorm=False)
    repair_(twin, batches, structure=structure, refine=False, batchnorm=False, logits=False)
    new = images(300, seed=9)
    assert output_error(dense, model, new) < output_error(dense, twin, new)


def test_a_network_that_cannot_be_differentiated_is_refined_as_far_as_it_goes():
    _, model, structure, _ = pruned(Residual)

    def forward(network, batch):
        with torch.no_grad():
            return network(batch)

    report = repair_(model, BATCHES, structure=structure, forward=forward, batchnorm=False)
    assert report.after < report.before
    assert any("one by one" in note for note in report.notes)


def naive(model, dense, structure, masks, x, ridge):
    """The same method, plainly: for every layer rerun both networks from the start.

    Follows the definition with explicit sums by hand; only the order (the layer of a shortcut
    that is computed last makes up for the sum) is taken from the documentation.
    """
    sums = {}
    for found in structure.sums:
        sums[found.call] = found  # the later layer wins; structure.sums is in order of calls
    streams = {found.layer: found for found in sums.values() if found.layer in masks}
    order = [la.name for la in structure if la.name in masks]
    # a layer is solved where its sum is reached: after all layers called before the sum
    if "down" in order:
        order = ["conv1", "conv2", "down", "conv3", "conv4"]

    def capture(network, name, stream):
        kept = {}
        module = network.get_submodule(name)
        handle = module.register_forward_hook(
            lambda _m, args, out: kept.update(x=args[0].detach(), out=out.detach())
        )
        with torch.no_grad():
            network(x)
            if stream is not None:
                kept["stream"] = other_operand(network, x, name)
        handle.remove()
        return kept

    for name in order:
        module, twin = model.get_submodule(name), dense.get_submodule(name)
        stream = streams.get(name)
        mine, theirs = capture(model, name, stream), capture(dense, name, stream)
        target = theirs["out"]
        if stream is not None:
            scale = torch.ones(1)
            if stream.norm is not None:
                norm = dense.get_submodule(stream.norm)
                scale = norm.weight.detach() / (norm.running_var + norm.eps).sqrt()
            target = target + (theirs["stream"] - mine["stream"]) / scale.reshape(-1, 1, 1)
        norm = {"conv1": "bn1", "conv2": "bn2", "conv4": "bn4"}.get(name)
        solve_plainly(model, module, twin, masks[name], mine["x"], target, norm, ridge)


def other_operand(network, x, name):
    """What Residual adds to the output of ``name``."""
    x = torch.relu(network.bn(network.stem(x)))
    y = network.bn2(network.conv2(torch.relu(network.bn1(network.conv1(x)))))
    if name == "down":
        return y.detach()
    return torch.relu(y + network.down(x)).detach()


def solve_plainly(model, module, twin, keep, x, target, norm, ridge):
    if isinstance(module, nn.Linear):
        windows, target, groups = x[:, :, None], target[:, :, None], 1
    else:
        groups = module.groups
        windows = nn.functional.unfold(x, module.kernel_size, 1, module.padding, module.stride)
    windows = windows.transpose(0, 1).flatten(1).double().numpy()
    target = target.transpose(0, 1).flatten(1).double().numpy()
    n, samples = windows.shape[0] // groups, windows.shape[1]
    columns = np.repeat(keep, n // keep.shape[1], axis=1)
    free = module.bias is not None or norm is not None
    old = twin.weight.detach().flatten(1).double().numpy()
    old_bias = np.zeros(len(old)) if module.bias is None else twin.bias.detach().double().numpy()

    def inputs_of(i):
        group = i // (len(old) // groups)
        return windows[n * group : n * (group + 1)]

    def error(weights, offsets):
        return (
            sum(
                ((target[i] - w @ inputs_of(i) - b) ** 2).sum()
                for i, (w, b) in enumerate(zip(weights, offsets, strict=True))
            )
            / (target**2).sum()
        )

    def attempt(strength):
        weights, offsets = old * columns, old_bias.copy()
        for i in range(len(old)):
            s = np.flatnonzero(columns[i])
            a, t = inputs_of(i), target[i]
            centre, level = (a.mean(1), t.mean()) if free else (np.zeros(n), 0.0)
            a, t = a - centre[:, None], t - level
            gram = a @ a.T
            pull = strength * np.mean(np.diag(gram))
            if len(s):
                left = gram[np.ix_(s, s)] + pull * np.eye(len(s))
                weights[i, s] = np.linalg.solve(left, a[s] @ t + pull * old[i, s])
                offsets[i] = level - weights[i] @ centre
        return weights, offsets

    unexplained = error(old * columns, old_bias)
    if samples > n:
        corrected = error(*attempt(ridge)) * samples / (samples - n)
        unexplained = min(unexplained, corrected)
    extra = unexplained * n / samples
    weights, offsets = attempt(ridge if extra < 0.1 * ridge else ridge + extra)
    hidden = masking.original_of(module).detach()
    kept = torch.from_numpy(columns).reshape(hidden.shape)
    hidden[kept] = torch.from_numpy(weights).reshape(hidden.shape).to(hidden)[kept]
    if module.bias is not None:
        masking.original_of(module, "bias").detach().copy_(torch.from_numpy(offsets))
    elif norm is not None:
        model.get_submodule(norm).running_mean.sub_(torch.from_numpy(offsets))


@KINDS
def test_lockstep_equals_the_plain_rerun(kind, monkeypatch):
    monkeypatch.setattr(moments, "ENOUGH", 10**6)  # all positions, as in the plain version
    dense, model, structure, masks = pruned(kind)
    twin = copy.deepcopy(model)
    repair_(model, BATCHES, structure=structure, refine=False, batchnorm=False, logits=False)
    naive(twin, dense, structure, masks, images(), 1e-3)
    expected = twin.state_dict()
    for key, value in model.state_dict().items():
        if not key.endswith("repaired"):
            # float32 windows and products against float64: 1e-5 of weights of order 1
            assert torch.allclose(value.double(), expected[key].double(), atol=1e-5), key


def test_residual_sums_are_used():
    dense, model, structure, _ = pruned(Residual)
    assert {found.layer for found in structure.sums} == {"conv2", "down", "conv4"}
    blind = Structure(structure.layers, structure.norms)
    twin = copy.deepcopy(model)
    repair_(model, BATCHES, structure=structure, refine=False, batchnorm=False, logits=False)
    repair_(twin, BATCHES, structure=blind, refine=False, batchnorm=False, logits=False)
    assert output_error(dense, model, images()) < output_error(dense, twin, images())


def test_a_redundant_kernel_is_recovered_exactly():
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 4, 1), nn.ReLU(), nn.Conv2d(4, 5, 3), nn.Flatten(), nn.Linear(180, 5)
    ).double()
    with torch.no_grad():
        model[0].weight[1] = model[0].weight[0]  # channel 1 is twice channel 0
        model[0].weight[1] *= 2
        model[0].bias[1] = 2 * model[0].bias[0]
    structure = find_structure(model, images(2))
    dense = copy.deepcopy(model)
    keep = np.ones((5, 4), dtype=bool)
    keep[:, 1] = False
    masking.apply_(model, {"2": keep}, structure=structure)
    x = images().double()
    assert output_error(dense, model, x) > 1e-2
    plain = {"refine": False, "batchnorm": False, "logits": False}
    report = repair_(model, [x], structure=structure, ridge=1e-10, **plain)
    # only the ridge keeps the answer from being exact
    assert output_error(dense, model, x) < 1e-12
    assert report.layers[0].after < 1e-12


def test_divergence_never_rises():
    for seed in range(3):
        _, model, structure, _ = pruned(Residual, share=0.7, seed=seed)
        # Statistics from unrelated images are bad and have to be thrown away.
        report = repair_(
            model, [images(8)], structure=structure, bn_images=[5 + 3 * images(8, seed=3)]
        )
        current = report.before
        for step in report.steps:
            assert step.kept == (step.after < current)
            current = step.after if step.kept else current
        assert report.after == current <= report.before


def test_a_step_that_does_not_help_is_undone():
    _, model, structure, _ = pruned(Residual)
    before = copy.deepcopy(model.state_dict())
    report = repair_(
        model,
        BATCHES,
        structure=structure,
        least_squares=False,
        bn_images=[100 + 30 * images(8, seed=3)],
    )
    assert [(step.name, step.kept) for step in report.steps] == [("batchnorm", False)]
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())


@KINDS
@pytest.mark.parametrize("batchnorm", [True, False])
def test_part_of_the_way_lies_between_the_masked_network_and_the_solved_one(kind, batchnorm):
    _, start, structure, _ = pruned(kind)
    far, some = copy.deepcopy(start), copy.deepcopy(start)
    common = {"structure": structure, "logits": False}
    repair_(far, BATCHES, batchnorm=False, **common)
    report = repair_(some, BATCHES, solved_share=0.75, batchnorm=batchnorm, **common)
    assert [step.name for step in report.steps] == ["least squares"]  # BatchNorm is part of it
    if batchnorm:
        reestimate_(start, BATCHES)
    ends = (start.state_dict(), far.state_dict())
    for key, value in some.state_dict().items():
        if value.is_floating_point():
            wanted = torch.lerp(ends[0][key], ends[1][key], 0.75)
            # The same arithmetic in another order, in float32.
            torch.testing.assert_close(value, wanted, rtol=1e-5, atol=1e-6)


def test_batchnorm_alone():
    dense, model, structure, _ = pruned(Residual, share=0.6)
    # Statistics that are off by far, as after a large cut.
    model.bn1.running_mean += 3.0
    before = output_error(dense, model, images())
    report = repair_(model, iter(BATCHES), structure=structure, dense=dense, least_squares=False)
    assert report.layers == ()
    assert report.steps[0].kept
    assert output_error(dense, model, images()) < before


def test_modes_hooks_and_threads_are_as_before():
    _, model, structure, _ = pruned(Residual)
    model.train()
    model.bn1.eval()
    modes = [module.training for module in model.modules()]
    repair_(model, BATCHES, structure=structure)
    assert [module.training for module in model.modules()] == modes
    assert no_hooks(model)
    assert torch.is_grad_enabled()


def no_hooks(model):
    threads = [t for t in threading.enumerate() if t.name == "snacs-lockstep"]
    return not threads and not any(
        m._forward_hooks or m._forward_pre_hooks for m in model.modules()
    )


class Trap(nn.Module):
    """Raises when it is called for the n-th time."""

    def __init__(self, error, at):
        super().__init__()
        self.error, self.left = error, at

    def forward(self, x):
        self.left -= 1
        if self.left == 0:
            raise self.error
        return x


@pytest.mark.parametrize("at", [1, 3, 5, 6, 7, 8, 9, 10, 13, 14])
@pytest.mark.parametrize("error", [ValueError("broken"), KeyboardInterrupt()])
def test_errors_anywhere_leave_the_model_as_it_was(at, error):
    torch.manual_seed(0)
    trap = Trap(error, at)
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 3), nn.ReLU(), trap, nn.Conv2d(4, 4, 3), nn.Flatten(),
        nn.Linear(16, 5),
    )  # fmt: skip
    structure = Structure(
        tuple(
            Layer(name, kind, 4, 4, 9)
            for name, kind in (("0", "Conv2d"), ("1", "Conv2d"), ("4", "Conv2d"))
        )
    )
    keep = np.eye(4, dtype=bool)
    masking.apply_(model, {"1": keep, "4": keep})
    dense = copy.deepcopy(model)
    masking.remove_(dense)
    dense[3] = trap
    before = {key: value.clone() for key, value in model.state_dict().items()}
    wanted = KeyboardInterrupt if isinstance(error, KeyboardInterrupt) else ModelError
    batches = [images(60), images(60, seed=2)]
    if at > 13:  # the trap is past the last call
        repair_(model, batches, structure=structure, dense=dense, refine=False)
        assert masking.mask_of(model[1]).repaired
        return
    with pytest.raises(wanted):
        repair_(model, batches, structure=structure, dense=dense, refine=False)
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())
    assert no_hooks(model)
    assert no_hooks(dense)


def test_an_interrupt_between_layers_leaves_the_model_as_it_was():
    _, model, structure, _ = pruned(Residual)
    before = copy.deepcopy(model.state_dict())

    def stop(done, total, name):
        assert total == 6  # five masked layers and the classifier
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        repair_(model, BATCHES, structure=structure, progress=stop)
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())
    assert no_hooks(model)


def test_looking_at_outputs_is_told_batch_by_batch():
    _, model, structure, _ = pruned(Residual)
    seen = []
    told = lambda done, total: seen.append((done, total))  # noqa: E731
    report = repair_(model, BATCHES, structure=structure, compared=told)
    whole = [(number + 1, len(BATCHES)) for number in range(len(BATCHES))]
    assert len(report.steps) == 3
    # The dense network, the masked one, that after each step, and once more for the last one.
    assert seen == 6 * whole


def test_a_second_repair_needs_the_dense_network():
    dense, model, structure, _ = pruned(Residual)
    repair_(model, BATCHES, structure=structure)
    with pytest.raises(InputError, match="dense="):
        repair_(model, BATCHES, structure=structure)
    again = repair_(model, BATCHES, structure=structure, dense=dense)
    assert again.after <= again.before
    with pytest.raises(InputError, match="another network"):
        repair_(model, BATCHES, structure=structure, dense=model)


class Twice(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.shared = nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 3, padding=1)
        self.fc = nn.Linear(4, 5)

    def forward(self, x):
        x = torch.relu(self.shared(torch.relu(self.stem(x))))
        return self.fc(torch.relu(self.shared(x)).mean((2, 3)))


def test_what_is_not_repaired_is_listed(monkeypatch):
    _, model, structure, _ = pruned(Twice)
    report = repair_(model, BATCHES, structure=structure, refine=False)
    assert report.layers == ()
    assert any("shared" in note and "2 times" in note for note in report.notes)
    _, model, structure, _ = pruned(Concat)
    monkeypatch.setattr(tasks, "WIDEST", 60)
    report = repair_(model, BATCHES, structure=structure)
    assert any("hidden" in note and "72 columns" in note for note in report.notes)


def test_many_small_batches_are_joined_and_memory_is_bounded(monkeypatch):
    _, model, structure, _ = pruned(Residual)
    twin = copy.deepcopy(model)
    x = images(80)
    labels = torch.zeros(80, dtype=torch.long)
    small = [(x[i : i + 1], labels[i : i + 1]) for i in range(80)]
    report = repair_(model, small, structure=structure, batchnorm=False)
    assert report.images == 80
    assert report.notes == ()
    monkeypatch.setattr(holding, "MEMORY", 1)
    report = repair_(twin, BATCHES, structure=structure)
    assert report.images == 25
    assert any("25 calibration images" in note for note in report.notes)


def test_bad_arguments():
    dense, model, structure, _ = pruned(Residual)
    with pytest.raises(InputError, match="no masks"):
        repair_(dense, BATCHES, structure=structure)
    with pytest.raises(InputError, match="no calibration images"):
        repair_(model, [], structure=structure)
    with pytest.raises(InputError, match="solved_share"):
        repair_(model, BATCHES, structure=structure, solved_share=0.0)
    with pytest.raises(InputError, match="ridge"):
        repair_(model, BATCHES, structure=structure, ridge=0.0)
    with pytest.raises(InputError, match="conv1"):
        repair_(model, BATCHES, structure=structure, dense=Residual(width=4))
    with pytest.raises(InputError, match="no layer"):
        repair_(model, BATCHES, structure=structure, dense=Concat())
    with pytest.raises(ModelError, match="NaN"):
        repair_(model, [images() * float("nan")], structure=structure)
    assert no_hooks(model)


def test_dict_batches_and_a_forward_function():
    _, model, structure, _ = pruned(Residual)
    twin = copy.deepcopy(model)
    named = [
        {"picture": batch, "y": torch.zeros(len(batch), dtype=torch.long)} for batch in BATCHES
    ]
    report = repair_(
        model,
        named,
        structure=structure,
        forward=lambda net, batch: {"logits": net(batch["picture"])},
    )
    expected = repair_(twin, BATCHES, structure=structure)
    assert report.after == pytest.approx(expected.after)

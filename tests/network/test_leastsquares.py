"""The solver against plain numpy, one filter at a time."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from snacs.network import moments as summing
from snacs.network.leastsquares import problem_of, solve
from snacs.network.moments import Moments, outputs_of, windows_of

MODULES = [
    nn.Conv2d(4, 6, 3, padding=1),
    nn.Conv2d(4, 6, (3, 2), stride=(2, 1), padding=(0, 2), dilation=(1, 2), bias=False),
    nn.Conv2d(4, 6, 3, padding="same", groups=2),
    nn.Conv2d(4, 6, 3, padding=1, padding_mode="circular"),
    nn.Conv1d(4, 6, 5, stride=2, padding=2),
    nn.Conv3d(4, 6, 2, groups=2),
    nn.Linear(7, 6),
]


def inputs_for(module):
    generator = torch.Generator().manual_seed(0)
    if isinstance(module, nn.Linear):
        return torch.randn(5, 3, 7, generator=generator)
    return torch.randn(5, 4, *(7 for _ in module.kernel_size), generator=generator)


@pytest.mark.parametrize("module", MODULES, ids=str)
def test_windows_times_weights_are_the_output(module):
    x = inputs_for(module)
    output = module(x)
    windows = windows_of(module, x)
    groups = windows.shape[0]
    product = module.weight.reshape(groups, -1, windows.shape[1]) @ windows
    if module.bias is not None:
        product = product + module.bias.reshape(groups, -1, 1)
    # float32 sums of at most 36 products in another order
    assert torch.allclose(product, outputs_of(module, output), atol=1e-5)


@pytest.mark.parametrize("module", MODULES, ids=str)
def test_blocks_add_up_to_the_whole(module, monkeypatch):
    x = inputs_for(module).double()
    module = module.double()
    target = torch.randn_like(module(x).detach())
    whole, parts = Moments(module), Moments(module)
    whole.add(x, target)
    monkeypatch.setattr(summing, "BLOCK", 1)
    parts.add(x, target)
    module.float()
    assert whole.count == parts.count
    assert torch.allclose(whole.gram, parts.gram)  # float64: only the order of sums differs
    assert torch.allclose(whole.cross, parts.cross)


@pytest.mark.parametrize("module", MODULES, ids=str)
def test_surplus_rows_are_left_out_evenly(module, monkeypatch):
    """Every row and every image takes part, and windows still belong to their outputs."""
    x = torch.cat([inputs_for(module)] * 6)[:28].double()
    module = module.double()
    target = module(x).detach()
    rows = target.shape[1] if isinstance(module, nn.Linear) else target.shape[2]
    moments = Moments(module, images=28)
    monkeypatch.setattr(summing, "ENOUGH", 0.01)
    moments.add(x, target)
    per_image = target[0].numel() // 6
    assert moments.count <= -(-28 * per_image // rows) + per_image
    weight = module.weight.detach().reshape(6, -1)
    keep = np.ones(weight.shape, dtype=bool)
    found = solve(problem_of(moments, weight, keep, bias=module.bias, offset=False), ridge=1e-3)
    module.float()
    assert found.before < 1e-12  # windows · weights + bias are exactly the targets


def test_rows_rotate_over_images():
    module = nn.Conv2d(1, 1, 1, bias=False)
    x = torch.zeros(4, 1, 4, 1)
    x[torch.arange(4), 0, torch.arange(4), 0] = torch.tensor([1.0, 2.0, 3.0, 4.0])
    moments = Moments(module, images=10**6)
    moments.add(x[:3], x[:3])
    moments.add(x[3:], x[3:])
    # image k shows row k only: each value is met once
    assert moments.count == 4
    assert float(moments.gram) == 1 + 4 + 9 + 16


def reference(x, t, v, keep, *, ridge, offset):
    """One filter: columns of x (positions, n), targets t (positions,), weights before v."""
    x, t, v = (np.asarray(a, dtype=np.float64) for a in (x, t, v))
    if offset:
        centre, level = x.mean(0), t.mean()
        x, t = x - centre, t - level
    gram = x.T @ x
    pull = ridge * np.mean(np.diag(gram))
    w = np.zeros(len(v))
    s = np.flatnonzero(keep)
    right = x[:, s].T @ t + pull * v[s]
    w[s] = np.linalg.solve(gram[np.ix_(s, s)] + pull * np.eye(len(s)), right)
    return w, (level - w @ centre if offset else 0.0)


@pytest.mark.parametrize("offset", [True, False])
@pytest.mark.parametrize("share", [0.2, 0.9])  # kept columns; 0.9 goes through the inverse
def test_solution_is_that_of_the_normal_equations(offset, share):
    rng = np.random.default_rng(0)
    n, filters, positions = 80, 5, 400
    module = nn.Linear(n, filters, bias=False).double()
    x = rng.normal(size=(positions, n)) @ rng.normal(size=(n, n)) + 1.0
    t = rng.normal(size=(positions, filters)) + 3.0
    keep = rng.random((filters, n)) < share
    keep[3] = keep[2]
    moments = Moments(module)
    moments.add(torch.from_numpy(x), torch.from_numpy(t))
    v = module.weight.detach()
    found = solve(problem_of(moments, v, keep, bias=None, offset=offset), ridge=1e-3)
    first = [
        reference(x, t[:, i], v[i], keep[i], ridge=1e-3, offset=offset) for i in range(filters)
    ]
    left = sum(((t[:, i] - x @ w - b) ** 2).sum() for i, (w, b) in enumerate(first)) / (t**2).sum()
    before = ((t - x @ (v.numpy() * keep).T) ** 2).sum() / (t**2).sum()
    ridge = 1e-3 + min(before, left * positions / (positions - n)) * n / positions
    assert ridge > 0.01  # these targets are noise: most cannot be explained
    for i in range(filters):
        w, b = reference(x, t[:, i], v[i], keep[i], ridge=ridge, offset=offset)
        # condition number about 1e5 in float64
        assert np.allclose(found.weight[i].numpy(), w, atol=1e-9)
        assert np.isclose(float(found.offset[i]), b, atol=1e-9)
    residual = t - x @ found.weight.numpy().T - found.offset.numpy()
    assert np.isclose(found.after, (residual**2).sum() / (t**2).sum(), rtol=1e-8)
    residual = t - x @ (v.numpy() * keep).T
    assert np.isclose(found.before, (residual**2).sum() / (t**2).sum(), rtol=1e-8)


@settings(deadline=None, max_examples=30)
@given(
    seed=st.integers(0, 2**16),
    share=st.floats(0.0, 1.0),
    ridge=st.sampled_from([1e-9, 1e-3, 10.0]),
    offset=st.booleans(),
    groups=st.sampled_from([1, 2]),
)
def test_the_error_never_rises_and_removed_columns_stay_zero(seed, share, ridge, offset, groups):
    generator = torch.Generator().manual_seed(seed)
    module = nn.Conv2d(4, 4, 3, padding=1, groups=groups).double()
    x = torch.randn(3, 4, 5, 5, generator=generator, dtype=torch.float64)
    x[:, 1] = x[:, 0]  # singular Gram matrix
    target = torch.randn(3, 4, 5, 5, generator=generator, dtype=torch.float64)
    weight = module.weight.detach().reshape(4, -1)
    keep = (torch.rand(weight.shape, generator=generator) < share).numpy()
    moments = Moments(module)
    moments.add(x, target)
    found = solve(problem_of(moments, weight, keep, bias=module.bias, offset=offset), ridge=ridge)
    assert found.after <= found.before + 1e-12  # rounding of float64 sums
    assert not found.weight[torch.from_numpy(~keep)].any()


def test_dead_inputs_leave_weights_alone():
    module = nn.Linear(3, 2)
    moments = Moments(module)
    moments.add(torch.zeros(10, 3), torch.ones(10, 2))
    keep = np.ones((2, 3), dtype=bool)
    found = solve(
        problem_of(moments, module.weight.detach(), keep, bias=module.bias, offset=True), ridge=1e-3
    )
    assert torch.equal(found.weight.float(), module.weight.detach())
    assert torch.allclose(found.offset, torch.ones(2, dtype=torch.float64))


def test_few_samples_pull_harder():
    """With fewer samples than columns, noise must not be fitted."""
    generator = torch.Generator().manual_seed(0)
    module = nn.Linear(40, 3).double()
    x = torch.randn(2030, 40, generator=generator, dtype=torch.float64)
    clean = module(x).detach()
    noisy = clean + 0.3 * torch.randn(clean.shape, generator=generator, dtype=torch.float64)
    keep = np.ones((3, 40), dtype=bool)
    moments = Moments(module)
    moments.add(x[:30], noisy[:30])
    weight = module.weight.detach()
    found = solve(problem_of(moments, weight, keep, bias=module.bias, offset=True), ridge=1e-6)
    error = (x[30:] @ found.weight.T + found.offset - clean[30:]).square().mean()
    plain = np.linalg.lstsq(x[:30].numpy(), noisy[:30].numpy(), rcond=None)[0]
    plain_error = (x[30:].numpy() @ plain - clean[30:].numpy()) ** 2
    assert float(error) < 0.09  # the variance of the noise
    assert float(error) < 0.5 * plain_error.mean()

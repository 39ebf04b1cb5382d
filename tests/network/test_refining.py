"""Refined least squares: behind a ReLU, and with filters that are read together."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from snacs.network.conjugate import conjugate
from snacs.network.importance import output_coupling, output_importance
from snacs.network.layers import find_structure
from snacs.network.leastsquares import problem_of, solve
from snacs.network.moments import Moments
from snacs.network.refining import Reading, mixed, refine


def layer(seed: int = 0, samples: int = 400):
    """A linear layer, inputs, what it should give, and a mask of half its weights."""
    torch.manual_seed(seed)
    module = nn.Linear(12, 5)
    x = torch.randn(samples, 12) @ torch.randn(12, 12)
    keep = np.random.default_rng(seed).random((5, 12)) < 0.5
    keep[:, 0] = True
    return module, x, module(x).detach(), keep


def problem(module, x, target, keep, zeros=None):
    moments = Moments(module)
    moments.add(x, target, zeros)
    return problem_of(moments, module.weight.detach(), keep, bias=module.bias.detach(), offset=True)


def behind_relu(x, target, solution, sign=1.0):
    weight, offset = solution.weight.float(), solution.offset.float()
    guess = x @ weight.T + offset
    return float(((sign * guess).relu() - (sign * target).relu()).square().sum())


@settings(deadline=None, max_examples=25)
@given(seed=st.integers(0, 10**6))
def test_the_error_behind_a_relu_falls(seed):
    module, x, target, keep = layer(seed)
    for sign in (1.0, -1.0):
        asked = problem(module, x, target, keep, torch.zeros_like(target))
        first = solve(asked, ridge=1e-4)
        found = refine(asked, first, Reading(sign=torch.full((1, 5), sign)))
        before, after = (behind_relu(x, target, s, sign) for s in (first, found))
        assert after <= before * (1 + 1e-6)
    assert (found.weight[~torch.from_numpy(keep)] == 0).all()


def test_where_most_is_cut_off_the_rest_is_met_better():
    module, x, target, keep = layer(3)
    asked = problem(module, x, target, keep, target.quantile(0.8, dim=0).expand_as(target))
    first = solve(asked, ridge=1e-4)
    found = refine(asked, first, Reading(sign=torch.ones(1, 5)))
    zero = target.quantile(0.8, dim=0)
    shifted = [behind_relu(x, target - zero, s) for s in _less(first, found, zero)]
    assert shifted[1] < 0.96 * shifted[0]


def _less(first, found, zero):
    """The same solutions with the zero of the ReLU moved to 0."""
    return [replace(s, offset=s.offset - zero) for s in (first, found)]


def test_a_channel_of_unknown_sign_is_left_as_it_was():
    module, x, target, keep = layer()
    asked = problem(module, x, target, keep, torch.zeros_like(target))
    first = solve(asked, ridge=1e-4)
    found = refine(asked, first, Reading(sign=torch.tensor([[1.0, 0.0, 1.0, 1.0, 0.0]])))
    assert torch.allclose(found.weight[[1, 4]], first.weight[[1, 4]])
    assert not torch.allclose(found.weight[0], first.weight[0])


def test_nothing_to_know_changes_nothing():
    module, x, target, keep = layer()
    asked = problem(module, x, target, keep)
    first = solve(asked, ridge=1e-3)
    assert refine(asked, first, Reading()) is first


@settings(deadline=None, max_examples=25)
@given(seed=st.integers(0, 10**6))
def test_coupled_solves_the_normal_equations(seed):
    """Against one dense linear system in all kept weights at one time."""
    torch.manual_seed(seed)
    filters, n, ridge = 3, 6, 1e-2
    a, b = torch.randn(n, n).double(), torch.randn(filters, filters).double()
    gram, metric = a @ a.T, b @ b.T + 0.1 * torch.eye(filters).double()
    cross, old = torch.randn(n, filters).double(), torch.randn(filters, n).double()
    keep = torch.rand(filters, n) < 0.6
    keep[:, 0] = True
    old = old * keep
    found = conjugate(gram, cross, metric, keep, old, old, ridge=ridge, steps=500, close=1e-10)
    pull = ridge * gram.diagonal().mean() * metric.diagonal().mean()
    whole = torch.kron(metric, gram) + pull * torch.eye(filters * n).double()
    right = (metric @ cross.T + pull * old).reshape(-1)
    kept = keep.reshape(-1)
    expected = torch.zeros(filters * n).double()
    expected[kept] = torch.linalg.solve(whole[kept][:, kept], right[kept])
    assert found.numpy() == pytest.approx(expected.reshape(filters, n).numpy(), rel=1e-4, abs=1e-6)


def test_many_masks_of_a_large_layer_are_solved_together(monkeypatch):
    torch.manual_seed(0)
    module = nn.Linear(60, 40)
    x = torch.randn(900, 60) @ torch.randn(60, 60)
    keep = np.random.default_rng(0).random((40, 60)) < 0.4
    asked = problem(module, x, module(x).detach(), keep)
    one_by_one = solve(asked, ridge=1e-3)
    monkeypatch.setattr("snacs.network.leastsquares.LARGE", 1)
    together = solve(asked, ridge=1e-3)
    assert not torch.equal(one_by_one.weight, together.weight)
    assert one_by_one.after <= together.after < 1.001 * one_by_one.after < together.before
    assert not together.weight[~torch.from_numpy(keep)].any()
    few = problem(module, x, module(x).detach(), np.repeat(keep[:2], 20, axis=0))
    monkeypatch.undo()
    direct = solve(few, ridge=1e-3).weight
    monkeypatch.setattr("snacs.network.leastsquares.LARGE", 1)
    assert torch.equal(solve(few, ridge=1e-3).weight, direct)  # two masks: two factors


def test_without_a_mask_coupling_changes_nothing():
    module, x, target, _ = layer()
    asked = problem(module, x, target * 2, np.ones((5, 12), dtype=bool))
    first = solve(asked, ridge=1e-9)
    root = torch.randn(5, 5).double()
    found = refine(asked, first, Reading((root @ root.T)[None]))
    assert torch.allclose(found.weight, first.weight, rtol=1e-3, atol=1e-4)


def test_coupled_errors_are_smaller_where_they_count():
    module, x, target, keep = layer(5)
    asked = problem(module, x, target, keep)
    first = solve(asked, ridge=1e-6)
    root = torch.randn(5, 1).double()
    metric = mixed((root @ root.T)[None])
    found = refine(asked, first, Reading((root @ root.T)[None]))

    def counted(solution):
        error = (x @ solution.weight.float().T + solution.offset.float() - target).double()
        return float(((error @ metric[0]) * error).sum())

    assert counted(found) < 0.9 * counted(first)


def test_large_layers_are_solved_as_well_in_single_precision(monkeypatch):
    torch.manual_seed(0)
    module = nn.Linear(60, 16)
    x = torch.randn(50, 60) @ torch.randn(60, 60)  # fewer samples than columns
    keep = np.random.default_rng(0).random((16, 60)) < 0.4
    asked = problem(module, x, module(x).detach() + torch.randn(50, 16), keep)
    first = solve(asked, ridge=1e-3)
    root = torch.randn(1, 16, 16)
    reading = Reading(coupling=root @ root.transpose(1, 2))
    found = refine(asked, first, reading)
    monkeypatch.setattr("snacs.network.conjugate.LARGE", 1)
    rounded = refine(asked, first, reading)
    assert rounded.weight.dtype == torch.float64
    assert not torch.equal(found.weight, rounded.weight)
    torch.testing.assert_close(found.weight, rounded.weight, rtol=1e-3, atol=1e-4)


def test_samples_are_held_up_to_a_limit(monkeypatch):
    monkeypatch.setattr("snacs.network.moments.KEPT", 1)
    module, x, target, keep = layer()
    moments = Moments(module)
    moments.add(x[:200], target[:200], torch.zeros(200, 5))
    moments.add(x[200:], target[200:], torch.zeros(200, 5))
    assert len(moments.samples) == 1
    assert moments.count == 400
    asked = problem_of(moments, module.weight.detach(), keep, bias=module.bias, offset=True)
    first = solve(asked, ridge=1e-4)
    found = refine(asked, first, Reading(sign=torch.ones(1, 5)))
    assert behind_relu(x, target, found) < behind_relu(x, target, first)


def test_the_diagonal_of_the_coupling_is_the_importance():
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Conv2d(4, 6, 3, groups=2), nn.ReLU(),
        nn.Flatten(), nn.Linear(6 * 16, 3),
    )  # fmt: skip
    batches = [torch.randn(10, 1, 8, 8)]
    structure = find_structure(model, batches[0])
    importance = output_importance(model, structure, batches, seed=1)
    coupling = output_coupling(model, structure, batches, seed=1)
    assert coupling["2"].shape == (2, 3, 3)
    diagonal = coupling["2"].diagonal(dim1=1, dim2=2).reshape(-1).numpy()
    assert diagonal == pytest.approx(importance["2"], rel=1e-5)

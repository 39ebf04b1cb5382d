"""The entry point: every method by name, rounding, seeds, errors; and the magnitude family."""

from __future__ import annotations

import joblib
import numpy as np
import pytest
from layer_evidence import make_evidence

from snacs.config import SCORES, Config
from snacs.errors import InputError
from snacs.scores import METHODS, RESOLUTION, magnitude, score
from snacs.scores.parallel import Threads, map_threads
from snacs.values import Layer


def test_methods_are_those_of_the_configuration():
    assert tuple(METHODS) == SCORES


@pytest.mark.parametrize("method", SCORES)
@pytest.mark.parametrize("view", ["child", "layer"])
def test_every_method_scores_every_connection_and_repeats(method, view):
    evidence = make_evidence(samples=50, groups=2)
    config = Config(score=method, view=view)
    first, again = score(evidence, config, seed=1), score(evidence, config, seed=1, threads=2)
    assert first.values.shape == (4, 3)
    assert np.isfinite(first.values).all()
    assert (first.values >= 0).all()  # the rounding of scores counts on it
    assert np.array_equal(first.values, again.values)
    assert first.occupancy == again.occupancy
    assert bool(first.occupancy) == (method == "acmi")


@pytest.mark.parametrize("method", ["acmi", "random", "mint"])
def test_seed_and_layer_name_both_count(method):
    evidence = make_evidence(samples=50)
    config = Config(score=method, view="layer", shifts=1)
    base = score(evidence, config, seed=0).values
    assert not np.array_equal(base, score(evidence, config, seed=1).values)
    renamed = Layer("head", "Conv2d", 4, 3, 2)
    other = type(evidence)(**{**vars(evidence), "layer": renamed})
    assert not np.array_equal(base, score(other, config, seed=0).values)


def test_worker_processes_give_the_same_bits():
    evidence = make_evidence(c_out=6, c_in=5, samples=90)
    configs = [Config(), Config(groups=2), Config(view="layer"), Config(view="layer", groups=2)]
    here = [score(evidence, config, seed=0, threads=2).values for config in configs]
    tasks = [joblib.delayed(score)(evidence, config, seed=0) for config in configs]
    there = joblib.Parallel(n_jobs=2, backend="loky")(tasks)
    assert all(np.array_equal(a, b.values) for a, b in zip(here, there, strict=True))


def test_no_global_randomness_is_used():
    evidence = make_evidence()
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    for method in SCORES:
        assert score(evidence, Config(score=method), seed=0).values.shape == (4, 3)
    assert np.array_equal(before, np.random.get_state()[1])  # noqa: NPY002


def test_values_are_rounded_to_a_millionth_of_the_largest():
    values = score(make_evidence(), Config(score="l2"), seed=0).values
    exact = magnitude.l2(make_evidence())
    steps = values / (exact.max() * RESOLUTION)
    assert steps == pytest.approx(np.round(steps), abs=1e-6)
    assert np.abs(values - exact).max() <= exact.max() * RESOLUTION * 0.5001
    assert values.max() == pytest.approx(exact.max(), rel=1e-12)


def test_scores_of_a_silent_layer_are_zero():
    silent = make_evidence(weight=np.zeros((4, 3, 2)))
    assert (score(silent, Config(score="l1"), seed=0).values == 0).all()


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("name", ["weight", "bias", "windows", "inputs", "outputs", "input_rms"])
def test_values_that_are_not_finite_are_refused_by_layer_and_array(name, bad):
    array = getattr(make_evidence(), name).copy()
    array.flat[1] = bad
    evidence = make_evidence(**{name: array})
    words = {"windows": "input windows", "input_rms": "input RMS"}
    expected = rf"Layer 'body\.conv': its {words.get(name, name)} must be finite"
    with pytest.raises(InputError, match=expected):
        score(evidence, Config(), seed=0)


@pytest.mark.filterwarnings("error")
def test_large_values_whose_sum_overflows_are_finite():
    loud = make_evidence(input_rms=np.full(3, np.finfo(np.float32).max, np.float32))
    assert score(loud, Config(score="random"), seed=0).values.shape == (4, 3)


def test_magnitudes_by_hand():
    weight = np.array([[[3.0, -4.0], [0.0, 0.0]], [[1.0, 1.0], [-2.0, 0.0]]])
    evidence = make_evidence(c_out=2, c_in=2, weight=weight, input_rms=[2.0, 10.0])
    assert magnitude.l1(evidence) == pytest.approx(np.array([[7, 0], [2, 2]]))
    assert magnitude.l2(evidence) == pytest.approx(np.array([[5, 0], [2**0.5, 2]]))
    assert magnitude.l2_activation(evidence) == pytest.approx(np.array([[10, 0], [8**0.5, 20]]))


def test_activation_of_the_right_channel_is_used_in_grouped_convolutions():
    evidence = make_evidence(
        c_out=2, c_in=1, kernel=1, groups=2, weight=np.ones((2, 1, 1)), input_rms=[3.0, 7.0]
    )
    assert magnitude.l2_activation(evidence)[:, 0] == pytest.approx([3, 7])


def test_random_scores_are_uniform_numbers():
    values = magnitude.uniform(make_evidence(), np.random.default_rng(0))
    assert ((values >= 0) & (values < 1)).all()
    assert len(np.unique(values)) == values.size


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("count", [0, 1, 2, 7])
def test_threads_share_every_item_once(threads, count):
    seen = []
    with Threads(threads) as pool:
        pool.share(lambda first, last: seen.extend(range(first, last)), count)
    assert sorted(seen) == list(range(count))


def test_threads_keep_the_order_and_pass_errors_on():
    assert map_threads(lambda n: n * n, range(20), threads=3) == [n * n for n in range(20)]

    def fail(number: int) -> int:
        raise InputError(f"no {number}")

    with pytest.raises(InputError, match="no"):
        map_threads(fail, range(4), threads=2)

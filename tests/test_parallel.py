"""The map over layers: the same results, in order, with any number of workers."""

from __future__ import annotations

import os
import signal

import numpy as np
import pytest
from threadpoolctl import threadpool_info

from snacs.errors import WorkerError
from snacs.parallel import WORTH_PROCESSES, ordered_map, worker_count


def product(size: int, seed: int) -> np.ndarray:
    """A matrix product large enough to be threaded by a BLAS that may."""
    values = np.random.default_rng(seed).standard_normal((size, size))
    return values @ values.T


def threads() -> int:
    return max(pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas")


def test_workers_change_no_bit_and_no_order():
    arguments = [{"size": 150, "seed": seed} for seed in range(5)]
    alone = list(ordered_map(product, arguments, workers=1))
    together = list(ordered_map(product, arguments, workers=2))
    for ours, theirs, named in zip(alone, together, arguments, strict=True):
        np.testing.assert_array_equal(ours, theirs)
        # In this process the BLAS may use more threads and round otherwise in the last bits.
        np.testing.assert_allclose(ours, product(**named), rtol=0, atol=1e-10)


@pytest.mark.parametrize("workers", [1, 2])
def test_every_task_sees_one_blas_thread(workers):
    assert list(ordered_map(threads, [{}, {}], workers=workers)) == [1, 1]


def test_an_error_in_a_worker_comes_out():
    with pytest.raises(ValueError, match="negative dimensions"):
        list(ordered_map(product, [{"size": -1, "seed": 0}] * 2, workers=2))


def test_small_work_stays_in_this_process():
    assert worker_count(None, tasks=50, work=WORTH_PROCESSES - 1) == 1
    assert worker_count(None, tasks=50, work=WORTH_PROCESSES) >= 1
    assert worker_count(8, tasks=3, work=1) == 3
    assert worker_count(8, tasks=0, work=1) == 1


def die(last: bool) -> int:
    if last:
        os.kill(os.getpid(), signal.SIGKILL)
    return 1


def test_a_killed_worker_is_said_in_our_words():
    with pytest.raises(WorkerError, match="jobs=1"):
        list(ordered_map(die, [{"last": False}, {"last": True}], workers=2))
    # The next map starts workers of its own.
    assert list(ordered_map(die, [{"last": False}] * 3, workers=2)) == [1, 1, 1]

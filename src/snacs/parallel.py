"""The parallel map over layers: joblib, with the BLAS of every task on one thread.

Local processes are the default. A cluster is chosen the joblib way, by naming its backend::

    with joblib.parallel_config("dask"):
        snacs.plan(model, images, target=0.7)

Results do not depend on the number of workers: every task sees one BLAS thread, in a worker and in
this process alike. This file imports no torch, and neither do the tasks, so workers start quickly.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeVar

import joblib
from threadpoolctl import threadpool_limits

from snacs.errors import WorkerError

T = TypeVar("T")

WORTH_PROCESSES = 200_000_000
"""Sample–connection pairs from which starting worker processes (about 2 s) pays."""


def worker_count(jobs: int | None, *, tasks: int, work: int) -> int:
    """How many workers to use: as asked, else one per core where the work is worth it."""
    if jobs is not None:
        return max(1, min(jobs, tasks))
    return max(1, min(os.cpu_count() or 1, tasks)) if work >= WORTH_PROCESSES else 1


def ordered_map(
    function: Callable[..., T], arguments: Sequence[dict[str, Any]], *, workers: int
) -> Iterator[T]:
    """Results in order, each as soon as it and its predecessors are there."""
    if workers <= 1:
        yield from (one_thread(function, **named) for named in arguments)
        return
    tasks = (joblib.delayed(one_thread)(function, **named) for named in arguments)
    try:
        yield from joblib.Parallel(n_jobs=workers, return_as="generator")(tasks)
    except BrokenProcessPool as error:
        raise WorkerError(
            "A worker process was ended from outside, most likely because memory ran out. Finished "
            "layers are kept if there is a run folder; try again with jobs=1 (--jobs 1)."
        ) from error


def one_thread(function: Callable[..., T], **named: Any) -> T:
    """Call a function with the BLAS limited to one thread, so that bits repeat."""
    with threadpool_limits(limits=1):
        return function(**named)

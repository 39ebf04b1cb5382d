"""Threads outside of kernels: those release the interpreter lock, and results keep their order."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


class Threads:
    """Some threads for several maps, as a context; a count of one is the calling thread.

    What they run must not use the same threads again: it would wait for itself.
    """

    def __init__(self, count: int) -> None:
        self.count = max(1, count)
        self._pool = ThreadPoolExecutor(max_workers=count) if count > 1 else None

    def __enter__(self) -> Threads:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown()

    def map(self, function: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
        """``[function(item) for item in items]``; each call must stand alone."""
        if self._pool is None:
            return [function(item) for item in items]
        return list(self._pool.map(function, items))

    def share(self, work: Callable[[int, int], None], count: int) -> None:
        """``work(first, last)`` for contiguous parts of ``range(count)``, one per thread."""
        each = -(-count // self.count)
        self.map(lambda first: work(first, min(first + each, count)), range(0, count, max(1, each)))


def map_threads(
    function: Callable[[Item], Result], items: Iterable[Item], *, threads: int
) -> list[Result]:
    """``[function(item) for item in items]`` on some threads; each call must stand alone."""
    with Threads(threads) as pool:
        return pool.map(function, items)

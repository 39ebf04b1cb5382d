"""A thread pool over parents: kernels release the interpreter lock, results keep their order."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def map_threads(
    function: Callable[[Item], Result], items: Iterable[Item], *, threads: int
) -> list[Result]:
    """``[function(item) for item in items]`` on some threads; each call must stand alone."""
    if threads <= 1:
        return [function(item) for item in items]
    with ThreadPoolExecutor(max_workers=threads) as pool:
        return list(pool.map(function, items))

"""``python -m benchmarks.scaling``: time and memory as everything grows.

The paper's complexity appendix in figures. Prints Markdown, one thread unless said otherwise. Peak
memory is what the call allocates beyond its evidence (numpy's and numba's arrays, by tracemalloc
and the workspace of the kernels).
"""

from __future__ import annotations

import argparse
import gc
import tracemalloc
from typing import Any

from threadpoolctl import threadpool_limits

from benchmarks.layers import wide_layer
from benchmarks.measure import SEED, best_of, machine
from snacs.config import Config
from snacs.scores import score
from snacs.values import Evidence

OPTIONS: dict[str, Any] = {"view": "layer", "directions": 4, "width": 2.0, "shifts": 1}
CHILD: dict[str, Any] = {"view": "child"}
Row = dict[str, float | int | str]


def tables(*, small: bool = False) -> dict[str, list[Row]]:
    """One table per axis; every axis starts from 256 filters and N = 2000."""
    base, samples = (16, 100) if small else (256, 2000)
    layer = wide_layer(c_out=base, c_in=base, samples=samples, seed=SEED)
    found: dict[str, list[Row]] = {}
    found["samples"] = [
        {"N": n, **_cost(_made(base, n), OPTIONS)} for n in _steps(samples, 4, half=True)
    ]
    found["directions"] = [
        {"dimensions of Z after hashing": d, **_cost(layer, {**OPTIONS, "directions": d})}
        for d in (1, 2, 4, 7)
    ]
    found["groups"] = [
        {"G": g, **_cost(layer, {**OPTIONS, "groups": g})} for g in _steps(base // 8, 4)
    ]
    widths = (8, 16) if small else (64, 128, 256, 512, 1024, 2048)
    found["filters"] = []
    for view, options in (("layer", OPTIONS), ("child", CHILD)):
        for width in widths:
            if view == "layer" or width <= 512:
                evidence = _made(width, samples)
                found["filters"].append(
                    {"view": view, "filters": f"{width}×{width}", **_cost(evidence, options)}
                )
    found["threads"] = [{"threads": t, **_cost(layer, OPTIONS, threads=t)} for t in (1, 2)]
    return found


def _made(width: int, samples: int) -> Evidence:
    return wide_layer(c_out=width, c_in=width, samples=samples, seed=SEED)


def _steps(start: int, count: int, *, half: bool = False) -> list[int]:
    first = start // 2 if half else start
    return [first * 2**step for step in range(count)]


def _cost(evidence: Evidence, options: dict[str, Any], *, threads: int = 1) -> Row:
    """Best of three runs, and the memory of one more."""
    config = Config.preset("default", **{"score": "acmi", **options})

    def run() -> None:
        score(evidence, config, seed=SEED, threads=threads)

    with threadpool_limits(limits=1):
        seconds = best_of(3, run)
        gc.collect()
        tracemalloc.start()
        run()
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return {"seconds": seconds, "peak MB": peak / 1e6}


def markdown(found: dict[str, list[Row]]) -> str:
    """The tables as Markdown."""
    parts = []
    for name, rows in found.items():
        head = list(rows[0])
        lines = [f"Against {name}:", "", "| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
        for row in rows:
            cells = [f"{v:.3g}" if isinstance(v, float) else str(v) for v in row.values()]
            lines.append("| " + " | ".join(cells) + " |")
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scaling", description=__doc__)
    parser.add_argument("--small", action="store_true", help="tiny sizes")
    arguments = parser.parse_args(words)
    print("; ".join(f"{name} {value}" for name, value in machine().items()))
    print(markdown(tables(small=arguments.small)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

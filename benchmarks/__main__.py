"""``python -m benchmarks``: every claim about speed, measured in one run, with its ratio.

Options: ``--only scores,limits,network,sparse,running,filters,scipy`` for some of them, ``--small``
for tiny sizes (does it run?), ``--out FILE`` for the JSON. Takes some minutes; take final figures
when the machine is idle.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from benchmarks import limits, network, running, scores, sparse
from benchmarks.measure import Line, machine

PARTS: dict[str, Callable[[bool], Iterator[Line]]] = {
    "scores": lambda small: scores.lines(scores.Sizes.small() if small else scores.Sizes()),
    "limits": lambda small: limits.lines(limits.Sizes.small() if small else limits.Sizes()),
    "network": lambda small: network.lines(network.Sizes.small() if small else network.Sizes()),
    "sparse": lambda small: sparse.lines(sparse.Sizes.small() if small else sparse.Sizes()),
    "running": lambda small: running.lines(running.Sizes.small() if small else running.Sizes()),
    "filters": lambda small: running.filter_lines(
        running.FilterSizes.small() if small else running.FilterSizes()
    ),
    "scipy": lambda small: scores.scipy_lines(scores.Sizes.small() if small else scores.Sizes()),
}


def main(words: list[str] | None = None) -> int:
    """Run the parts in order; 0 also where a claim is missed, since that is a finding."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--only", default=",".join(PARTS), metavar="PART,…")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--out", type=Path, default=Path("runs/bench.json"))
    arguments = parser.parse_args(words)
    chosen = arguments.only.split(",")
    unknown = set(chosen) - set(PARTS)
    if unknown:
        parser.error(f"there is no part {', '.join(sorted(unknown))}: give some of {list(PARTS)}")
    facts = machine()
    print("; ".join(f"{name} {value}" for name, value in facts.items()), flush=True)
    began, found = time.perf_counter(), []
    for part in chosen:
        for line in PARTS[part](arguments.small):
            if arguments.small:  # the claims are about the full sizes
                line = replace(line, target=None)
            print(line.text(), flush=True)
            found.append({"part": part, **line.facts()})
    missed = sum(line["holds"] is False for line in found)
    minutes = (time.perf_counter() - began) / 60
    print(f"{len(found)} lines, {missed} missed, {minutes:.1f} minutes; {arguments.out}")
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(
        json.dumps({"machine": facts, "minutes": minutes, "lines": found}, indent=1) + "\n"
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

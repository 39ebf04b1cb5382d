"""What commands print and write for people and for machines, and the commands that only show."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from typing import Any

from snacs.network.cost import cost
from snacs.plans import Plan
from snacs.reporting import terminal
from snacs.reporting.figures import FIGURES, draw
from snacs.reporting.folder import read_findings
from snacs.reporting.page import report as write_report

Arguments = argparse.Namespace


def report(arguments: Arguments) -> None:
    """``snacs report``: tables in the terminal, and the same and more as one HTML file."""
    found = read_findings(arguments.run, compare=arguments.compare)
    plan = found.plan
    facts = found.result or (_costs(plan) if plan else None)
    if plan is not None:
        if not arguments.quiet or arguments.json:
            show_plan(arguments, plan, dict(found.result) if found.result else None)
    elif arguments.json:
        out(arguments, found.compare)
    if found.compare is not None and not (arguments.json or arguments.quiet):
        terminal.show(terminal.compare_table(found.compare))
    if arguments.out is None and arguments.json:
        return  # machines get what they asked for
    target = arguments.out or arguments.run / "report.html"
    path = write_report(arguments.run, target, facts=facts, compare=arguments.compare)
    if not arguments.quiet:
        say(arguments, f"Report: {path} ({path.stat().st_size / 1e6:.1f} MB); open it in a browser")


def figure(arguments: Arguments) -> None:
    """``snacs figure``: one figure for a paper."""
    path = draw(
        arguments.kind,
        arguments.source,
        arguments.out,
        layers=arguments.layer,
        title=arguments.title,
    )
    out(
        arguments,
        {"figure": arguments.kind, "file": str(path)},
        f"{FIGURES[arguments.kind]}: {path}",
    )


def show_plan(arguments: Arguments, made: Plan, facts: dict[str, Any] | None = None) -> None:
    """A plan and, if there is one, its outcome."""
    parts: list[Any] = [terminal.plan_table(made)]
    if facts is None:
        layers = [asdict(row) for row in cost(made.structure, made.masks).layers]
        facts = {"pruned": made.pruned, "macs_pruned": made.pruned_macs, "layers": layers}
        facts["notes"] = list(made.notes)
    else:
        parts.append(terminal.summary_table(facts))
    if facts["notes"]:
        parts.append(terminal.notes_text(facts["notes"]))
    out(arguments, facts, *parts)


def out(arguments: Arguments, facts: Any, *parts: Any) -> None:
    """Facts for machines, or the same for people."""
    if arguments.json:
        json.dump(facts, sys.stdout, indent=1, default=str)
        sys.stdout.write("\n")
    else:
        terminal.show(*parts)


def say(arguments: Arguments, text: str) -> None:
    """A sentence for people."""
    if not arguments.json:
        terminal.show(text)


def _costs(made: Plan) -> dict[str, Any]:
    """What a plan that was not carried out would cost."""
    found = cost(made.structure, made.masks)
    return {
        "macs_compacted": found.macs_compacted,
        "bytes": found.dense_bytes,
        "bytes_csr": found.csr_bytes,
        "bytes_csr_narrow": found.csr_bytes_narrow,
        "layers": [asdict(row) for row in found.layers],
    }

"""One HTML file that explains a run: no network, opens from disk, can be mailed.

The page is a template, a style sheet, two vendored plotting scripts, our own scripts and one block
of JSON. Everything from outside (layer names, paths, notes) is inside that block; the scripts put
it on the page as text, never as markup, and a content security policy forbids the page to run any
other script or to fetch anything.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import os
from collections.abc import Mapping
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any, Protocol

from snacs.errors import InputError
from snacs.files import write_file
from snacs.plans import Plan
from snacs.reporting.document import document
from snacs.reporting.folder import Findings, read_findings

_ASSETS = resources.files("snacs.reporting") / "assets"
_VENDOR = ("d3.min.js", "plot.umd.min.js")
_SCRIPTS = ("core.js", "charts.js", "network.js", "layer.js", "table.js", "outcome.js", "main.js")


class Outcome(Protocol):
    """What :func:`snacs.prune` returns, as far as a report needs it."""

    @property
    def plan(self) -> Plan: ...

    def facts(self) -> dict[str, Any]: ...


def report(
    source: Plan | Outcome | str | os.PathLike[str],
    out: str | os.PathLike[str] = "report.html",
    *,
    facts: Mapping[str, Any] | None = None,
    compare: str | os.PathLike[str] | None = None,
    name: str | None = None,
) -> Path:
    """Write the report of a plan, of an outcome of ``prune``, or of a run folder.

    Parameters
    ----------
    source : Plan, Pruned or folder
        A run folder gives the fullest report.
    out : path
        The HTML file to write; an older one is replaced in one step.
    facts : mapping
        The outcome of a bare plan, as ``Pruned.facts()`` gives it: costs and accuracies.
    compare : folder
        A run of ``snacs compare`` to show beside.
    name : str
        Title of the report; the network's name or that of the folder if not given.

    Returns
    -------
    Path
        The file written.
    """
    path = Path(out)
    if path.is_dir():
        raise InputError(f"{path} is a folder; give a file such as {path / 'report.html'}.")
    write_file(path, render(findings_of(source, facts=facts, compare=compare, name=name)).encode())
    return path


def findings_of(
    source: Plan | Outcome | str | os.PathLike[str],
    *,
    facts: Mapping[str, Any] | None = None,
    compare: str | os.PathLike[str] | None = None,
    name: str | None = None,
) -> Findings:
    """All that is known about a plan, an outcome or a run folder."""
    beside = None if compare is None else Path(compare)
    if isinstance(source, (str, os.PathLike)):
        found = read_findings(Path(source), compare=beside)
        return replace(found, result=found.result or facts, name=name or found.name)
    comparison = read_findings(beside).compare if beside is not None else None
    if isinstance(source, Plan):
        return Findings(name or "plan", source, facts, compare=comparison)
    return Findings(name or "network", source.plan, source.facts(), compare=comparison)


def render(found: Findings) -> str:
    """The page as text."""
    scripts = [_asset("vendor", name) for name in _VENDOR]
    own = "\n".join(_asset(name) for name in _SCRIPTS)
    scripts.append(f'(() => {{\n"use strict";\n{own}\n}})();')
    parts = {
        "title": html.escape(f"{found.name} – snacs report"),
        "policy": html.escape(_policy(scripts)),
        "style": _asset("page.css"),
        "facts": as_script(document(found)),
        "scripts": "\n".join(f"<script>{script}</script>" for script in scripts),
    }
    page = _asset("page.html")
    for key, text in parts.items():
        before, mark, after = page.partition(f"<!--{key}-->")
        if not mark:
            raise InputError(f"page.html has no place for {key!r}: this installation is damaged.")
        page = before + text + after
    return page


def as_script(value: Any) -> str:
    """JSON that can stand inside ``<script type="application/json">`` whatever strings it holds.

    >>> as_script("</script><b>&")
    '"\\\\u003c/script\\\\u003e\\\\u003cb\\\\u003e\\\\u0026"'
    """
    text = json.dumps(value, separators=(",", ":"), allow_nan=False, ensure_ascii=True)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _policy(scripts: list[str]) -> str:
    """Only these scripts may run, and nothing may be fetched."""
    hashes = " ".join(
        f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"
        for script in scripts
    )
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )


def _asset(*place: str) -> str:
    return _ASSETS.joinpath(*place).read_text(encoding="utf-8")

"""The page: the numbers of the run folder, safe against what names may hold, and self-contained."""

from __future__ import annotations

import hashlib
import json
import re
from importlib import resources

import numpy as np
import pytest
from made_runs import FORMULA, HOSTILE, comparison, make_plan, make_run, result_of

import snacs
from snacs.errors import InputError
from snacs.files import write_json
from snacs.reporting.document import command, document
from snacs.reporting.page import as_script, findings_of
from snacs.store import Run

VENDOR = resources.files("snacs.reporting") / "assets" / "vendor"


def _facts(page: str) -> dict:
    return json.loads(re.search(r'id="facts">(.*?)</script>', page, re.DOTALL)[1])


def test_the_page_holds_the_numbers_of_the_run_folder(tmp_path):
    folder = make_run(tmp_path / "run")
    page = snacs.report(folder, tmp_path / "out.html").read_text()
    facts = _facts(page)
    result = json.loads((folder / "result.json").read_text())
    for name in ("weights", "weights_kept", "macs", "macs_kept", "macs_compacted", "bytes",
                 "bytes_csr", "bytes_csr_narrow", "pruned"):  # fmt: skip
        assert facts["totals"][name] == result[name]
    for shown, row in zip(facts["layers"], result["layers"], strict=True):
        for name in ("name", "weights", "weights_kept", "macs", "macs_kept", "filters_left"):
            assert shown[name] == row[name]
    assert {row.pop("step"): row for row in facts["accuracy"]} == result["accuracy"]
    assert facts["epochs"] == result["epochs"]
    assert facts["compare"] == json.loads((folder / "compare.json").read_text())
    assert facts["command"].startswith("snacs prune 'my net' --data digits --set shifts=8")


def test_curves_histograms_and_reasons_are_those_of_the_plan(tmp_path):
    plan = make_plan()
    facts = document(findings_of(make_run(tmp_path / "run", plan)))
    for part in plan.layers:
        row = next(row for row in facts["layers"] if row["name"] == part.layer.name)
        shown = [np.nan if value is None else value for value in row["curve"]["accuracy"]]
        # Curves are rounded to six digits for drawing.
        np.testing.assert_allclose(shown, part.curve.accuracy, atol=1e-6)
        assert row["protected"] == np.flatnonzero(part.protected).tolist()
        assert sum(row["histogram"]["pruned"]) == (~part.keep).sum()
        assert sum(row["histogram"]["kept"] + row["histogram"]["protected"]) == part.kept
        assert row["histogram"]["cut"] == part.scores[~part.keep].max()
        assert [curve["share"] for curve in row["candidates"]] == [0.0]
        assert row["why"]


def test_names_from_outside_never_become_markup(tmp_path):
    plan = make_plan(names=[HOSTILE, FORMULA, "</script><b>", "a\u2028b"])
    page = snacs.report(make_run(tmp_path / "run", plan), tmp_path / "out.html").read_text()
    assert HOSTILE not in page
    assert "<img" not in page
    assert [row["name"] for row in _facts(page)["layers"][1:3]] == [HOSTILE, FORMULA]
    page = snacs.report(plan, tmp_path / "named.html", name=HOSTILE).read_text()
    title = re.search(r"<title>(.*?)</title>", page, re.DOTALL)[1]
    assert "<" not in title
    # Four scripts: the facts, two vendored ones and ours.
    assert page.count("<script") == page.count("</script>") == 4


def test_json_inside_a_script_can_end_nothing():
    text = as_script({"</script>": "<!--", "x": "&"})
    assert not re.search(r"[<>&]", text)
    assert json.loads(text) == {"</script>": "<!--", "x": "&"}


def test_the_page_asks_for_nothing_outside_itself(tmp_path):
    page = snacs.report(make_plan(), tmp_path / "out.html").read_text()
    own = page
    for name in ("d3.min.js", "plot.umd.min.js"):
        own = own.replace((VENDOR / name).read_text(), "")
    addresses = set(re.findall(r"https?://[^\s\"'<)]+", own))
    assert addresses <= {"http://www.w3.org/2000/svg"}  # the name of a namespace
    assert not re.search(r"<(link|script|img|iframe)[^>]+(src|href)=\"(?!data:)", own)
    assert "default-src &#x27;none&#x27;" in own


def test_a_plan_and_an_outcome_can_be_reported_without_a_folder(tmp_path):
    plan = make_plan()

    class Outcome:
        def __init__(self):
            self.plan = plan

        def facts(self):
            return result_of(plan)

    bare = _facts(snacs.report(plan, tmp_path / "plan.html").read_text())
    assert bare["totals"]["weights_kept"] == result_of(plan)["weights_kept"]
    assert "bytes" not in bare["totals"]
    assert bare["accuracy"] == []
    full = _facts(snacs.report(Outcome(), tmp_path / "outcome.html").read_text())
    assert [row["step"] for row in full["accuracy"]] == ["dense", "pruned", "repaired", "retrained"]


def test_a_comparison_alone_makes_a_report(tmp_path):
    with Run(tmp_path / "compare"):
        write_json(tmp_path / "compare" / "compare.json", comparison())
    facts = _facts(snacs.report(tmp_path / "compare", tmp_path / "out.html").read_text())
    assert facts["layers"] == []
    assert len(facts["compare"]["cells"]) == 6
    beside = snacs.report(make_plan(), tmp_path / "b.html", compare=tmp_path / "compare")
    assert len(_facts(beside.read_text())["compare"]["cells"]) == 6


def test_numbers_that_json_does_not_know_become_null(tmp_path):
    folder = make_run(tmp_path / "run")
    result = json.loads((folder / "result.json").read_text())
    result["epochs"][0]["loss"] = float("nan")
    (folder / "result.json").write_text(json.dumps(result))
    facts = _facts(snacs.report(folder, tmp_path / "out.html").read_text())
    assert facts["epochs"][0]["loss"] is None


def test_a_folder_as_the_file_to_write_is_a_clear_mistake(tmp_path):
    with pytest.raises(InputError, match=r"report\.html"):
        snacs.report(make_plan(), tmp_path)


def test_commands_are_shown_as_they_can_be_typed():
    given = {"command": "prune", "network": "a:b", "target": 0.7, "quiet": True, "seed": 0,
             "set": ["view=layer", "shifts=8"], "no_repair": True, "ignore": []}  # fmt: skip
    assert command(given) == (
        "snacs prune a:b --target 0.7 --seed 0 --set view=layer --set shifts=8 --no-repair"
    )
    assert command({}) == ""


def test_vendored_scripts_are_the_ones_that_are_named():
    table = (VENDOR / "README.md").read_text()
    for name in ("d3.min.js", "plot.umd.min.js"):
        digest = hashlib.sha256((VENDOR / name).read_bytes()).hexdigest()
        assert digest in table
        assert f"`{name}`" in table
    for name in ("d3.LICENSE", "plot.LICENSE"):
        assert "Permission to use, copy, modify" in (VENDOR / name).read_text()

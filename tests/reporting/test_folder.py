"""Reading a run folder for showing: whole, partial, stale and foreign ones."""

from __future__ import annotations

import json

import pytest
from made_runs import comparison, make_plan, make_run, result_of

from snacs.errors import InputError, RunFolderError
from snacs.files import write_json
from snacs.reporting.folder import read_findings
from snacs.store import Run


def test_a_finished_run_is_read_whole(tmp_path):
    plan = make_plan()
    found = read_findings(make_run(tmp_path / "run", plan))
    assert found.plan.masks.keys() == plan.masks.keys()
    assert list(found.accuracy) == ["dense", "pruned", "repaired", "retrained"]
    assert found.result["weights_kept"] == result_of(plan)["weights_kept"]
    assert [curve.share for curve in found.candidates["body.0"]] == [0.0, 0.1]
    assert found.bench[0]["batch"] == 1
    assert found.compare["dense"] == 0.937


def test_a_plan_alone_is_enough(tmp_path):
    with Run(tmp_path / "run"):
        make_plan().save(tmp_path / "run" / "plan")
    found = read_findings(tmp_path / "run")
    assert found.result is None
    assert found.accuracy == {}
    assert found.candidates == {}


def test_the_outcome_of_another_plan_is_left_out_and_said(tmp_path):
    folder = make_run(tmp_path / "run")
    make_plan(seed=5).save(folder / "plan")
    found = read_findings(folder)
    assert found.result is None
    assert "another plan" in found.notes[0]
    assert found.candidates == {}  # the curves in the folder are not this plan's


def test_the_folder_of_a_demo_seed_will_do(tmp_path):
    make_run(tmp_path / "demo" / "seed-0" / "run", bench=False)
    write_json(tmp_path / "demo" / "seed-0" / "result.json", result_of(make_plan()))
    assert read_findings(tmp_path / "demo" / "seed-0").result is not None
    with pytest.raises(RunFolderError, match="seed-0"):
        read_findings(tmp_path / "demo")


def test_a_comparison_can_be_shown_alone_or_beside(tmp_path):
    with Run(tmp_path / "compare"):
        write_json(tmp_path / "compare" / "compare.json", comparison())
    alone = read_findings(tmp_path / "compare")
    assert alone.plan is None
    run = make_run(tmp_path / "run", compare=False)
    assert read_findings(run).compare is None
    assert read_findings(run, compare=tmp_path / "compare").compare == alone.compare
    with pytest.raises(RunFolderError, match=r"compare\.json"):
        read_findings(run, compare=run)


def test_what_is_no_run_gets_a_clear_error(tmp_path):
    with pytest.raises(RunFolderError, match="no run folder"):
        read_findings(tmp_path / "gone")
    with Run(tmp_path / "begun"):
        pass
    with pytest.raises(RunFolderError, match="no finished plan"):
        read_findings(tmp_path / "begun")


def test_a_foreign_result_is_refused(tmp_path):
    folder = make_run(tmp_path / "run")
    (folder / "result.json").write_text(json.dumps({"layers": [{"title": 1}]}))
    with pytest.raises(InputError, match=r"result\.json"):
        read_findings(folder)

"""``snacs report`` in the terminal: tables, JSON, quiet, colours, and the file it writes."""

from __future__ import annotations

import io
import json
import sys

import pytest
from made_runs import HOSTILE, comparison, make_plan, make_run
from rich.console import Console

from snacs.cli import main
from snacs.files import write_json
from snacs.reporting import progress, terminal
from snacs.store import Run


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return make_run(tmp_path_factory.mktemp("command") / "run", make_plan(), bench=False)


def test_tables_and_a_page_in_the_run_folder(run, capsys):
    assert main(["report", str(run)]) == 0
    text = capsys.readouterr().out
    for word in ("body.3", "█", "retrained", "92.99%", "l2", "a note", "report.html"):
        assert word in text
    assert "stem (first layer)" in text
    assert (run / "report.html").stat().st_size > 400_000


def test_machines_get_json_and_no_file_they_did_not_ask_for(run, tmp_path, capsys):
    (run / "report.html").unlink(missing_ok=True)
    assert main(["report", str(run), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts == json.loads((run / "result.json").read_text())
    assert not (run / "report.html").exists()
    out = tmp_path / "named.html"
    assert main(["report", str(run), "--json", "-o", str(out)]) == 0
    json.loads(capsys.readouterr().out)
    assert out.exists()


def test_quiet_prints_nothing(run, tmp_path, capsys):
    assert main(["report", str(run), "--quiet", "-o", str(tmp_path / "r.html")]) == 0
    printed = capsys.readouterr()
    assert printed.out == printed.err == ""


def test_a_plan_that_was_not_carried_out_has_costs(tmp_path, capsys):
    with Run(tmp_path / "run"):
        make_plan().save(tmp_path / "run" / "plan")
    assert main(["report", str(tmp_path / "run")]) == 0
    assert "body.0" in capsys.readouterr().out
    page = (tmp_path / "run" / "report.html").read_text()
    assert '"bytes_csr":' in page


def test_a_comparison_alone_is_shown(tmp_path, capsys):
    with Run(tmp_path / "run"):
        write_json(tmp_path / "run" / "compare.json", comparison())
    assert main(["report", str(tmp_path / "run")]) == 0
    assert "93.70%" in capsys.readouterr().out
    assert main(["report", str(tmp_path / "run"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["dense"] == 0.937


def test_no_color_means_none(run, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")  # as in a terminal
    monkeypatch.setenv("NO_COLOR", "")  # so that the variable is taken back after this test
    words = ["report", str(run), "-o", str(tmp_path / "r.html")]
    assert main(words) == 0
    assert "\x1b[33m" in capsys.readouterr().out  # a note is yellow
    assert main([*words, "--no-color"]) == 0
    assert "\x1b[33m" not in capsys.readouterr().out


def test_whole_names_fit_eighty_columns():
    plan = make_plan(names=["layer1.0.conv1", "layer2.0.shortcut.0", "c", "d"])
    stream = io.StringIO()
    terminal.show(terminal.plan_table(plan), console=Console(file=stream, width=80))
    assert "layer2.0.shortcut.0" in stream.getvalue()
    assert max(map(len, stream.getvalue().splitlines())) <= 80


def test_a_log_is_wide_enough_for_long_names(capsys, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    name = "encoder.blocks.10.attention.output.projection.linear"
    terminal.show(terminal.plan_table(make_plan(names=[name, "b", "c", "d"])))
    assert name in capsys.readouterr().out


def test_live_view_names_the_layer_as_it_is(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "200")
    with progress.watching(None) as watch:
        watch("scores", 1, 3, "[red]conv[/red]")
    assert "[red]conv[/red]" in sys.stderr.getvalue()
    log = io.StringIO()
    monkeypatch.setattr(sys, "stderr", log)
    with progress.watching(True) as watch:
        watch("scores", 0, 3, "first")
        watch("scores", 3, 3, HOSTILE)
    assert log.getvalue() == f"scores: 3/3, 0 s, {HOSTILE}\n"

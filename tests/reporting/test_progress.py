"""Progress: bars in a terminal, plain lines in a log, silence where asked."""

from __future__ import annotations

import io
import sys

import pytest

from snacs.reporting import progress


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def _work(watch) -> None:
    for done in range(4):
        watch("scores", done, 3)


def test_a_log_gets_one_plain_line_at_the_end(monkeypatch):
    log = io.StringIO()
    monkeypatch.setattr(sys, "stderr", log)
    with progress.watching(True) as watch:
        _work(watch)
    assert log.getvalue() == "scores: 3/3, 0 s\n"


@pytest.mark.parametrize(
    ("calls", "total", "lines"),
    [
        ((0, 1, 2), 4, ["work: 1/4, 20 s, 60 s left", "work: 2/4, 40 s, 40 s left"]),
        # What was there when the work went on took no time.
        ((90, 91, 92), 100, ["work: 91/100, 20 s, 180 s left", "work: 92/100, 40 s, 160 s left"]),
    ],
)
def test_a_slow_stage_says_how_long_it_still_takes(calls, total, lines, monkeypatch):
    log = io.StringIO()
    clock = iter([0.0, 20.0, 40.0])
    monkeypatch.setattr(sys, "stderr", log)
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock))
    with progress.watching(True) as watch:
        for done in calls:
            watch("work", done, total)
    assert log.getvalue().splitlines() == lines


def test_a_stage_that_begins_again_is_timed_again(monkeypatch):
    log = io.StringIO()
    clock = iter([0.0, 50.0, 1000.0, 1020.0])
    monkeypatch.setattr(sys, "stderr", log)
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock))
    with progress.watching(True) as watch:
        for _ in range(2):
            watch("repair", 1, 2)
            watch("repair", 2, 2)
    assert log.getvalue().splitlines() == ["repair: 2/2, 50 s", "repair: 2/2, 20 s"]


def test_none_is_silent_outside_a_terminal_and_false_always(monkeypatch):
    log = io.StringIO()
    monkeypatch.setattr(sys, "stderr", log)
    with progress.watching(None) as watch:
        _work(watch)
    monkeypatch.setattr(sys, "stderr", _Terminal())
    with progress.watching(False) as watch:
        _work(watch)
    assert log.getvalue() == ""
    assert sys.stderr.getvalue() == ""


def test_a_terminal_gets_bars(monkeypatch):
    terminal = _Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    with progress.watching(None) as watch:
        _work(watch)
    assert "scores" in terminal.getvalue()
    assert "3/3" in terminal.getvalue()


def test_a_function_is_used_as_it_is():
    seen = []
    with progress.watching(lambda *row: seen.append(row)) as watch:
        _work(watch)
    assert seen[-1] == ("scores", 3, 3)


def test_a_bar_begins_again_with_its_stage(monkeypatch):
    begun = []
    monkeypatch.setattr(sys, "stderr", _Terminal())
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(progress.Progress, "reset", lambda _, task, **facts: begun.append(facts))
    with progress.watching(None) as watch:
        _work(watch)
        assert begun == []
        _work(watch)
    assert begun == [{"total": 3, "completed": 0}]

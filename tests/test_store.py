"""The run folder: whole stages or none, found by key, never used when damaged."""

from __future__ import annotations

import errno
import multiprocessing
from pathlib import Path

import pytest

from snacs.errors import RunFolderError
from snacs.files import write_folder
from snacs.store import Run, key_of, read_run, slug


def _write(text: str, calls: list[str]):
    def fill(folder: Path) -> None:
        calls.append(text)
        (folder / "value.txt").write_text(text)

    return fill


def test_a_stage_is_made_once_for_a_key_and_anew_for_another(tmp_path):
    calls: list[str] = []
    with Run(tmp_path / "run") as run:
        run.once("stage/one", "a", _write("first", calls))
        run.once("stage/one", "a", _write("again", calls))
        assert calls == ["first"]
        folder = run.once("stage/one", "b", _write("second", calls))
    assert calls == ["first", "second"]
    assert (folder / "value.txt").read_text() == "second"


def test_a_later_process_finds_finished_stages(tmp_path):
    with Run(tmp_path / "run") as run:
        run.once("stage", "key", _write("x", []))
    with Run(tmp_path / "run") as run:
        assert run.has("stage", "key")
        assert not run.has("stage", "other")
        assert not run.has("never", "key")


def test_a_stage_that_fails_leaves_nothing(tmp_path):
    def fail(folder: Path) -> None:
        (folder / "half.txt").write_text("half")
        raise KeyboardInterrupt

    with Run(tmp_path / "run") as run:
        with pytest.raises(KeyboardInterrupt):
            run.once("stage", "key", fail)
        assert not run.has("stage", "key")
    assert list((tmp_path / "run").rglob("half.txt")) == []


@pytest.mark.parametrize("damage", ["cut", "changed", "missing", "mark", "marker-gone"])
def test_a_damaged_stage_is_named_and_not_used(tmp_path, damage):
    with Run(tmp_path / "run") as run:
        folder = run.once("stage", "key", _write("some text", []))
    value = folder / "value.txt"
    if damage == "cut":
        value.write_text("some")
    elif damage == "changed":
        value.write_text("SOME text")
    elif damage == "missing":
        value.unlink()
    elif damage == "mark":
        (folder / "stage.json").write_text("{")
    else:
        (folder / "stage.json").unlink()
    with Run(tmp_path / "run") as run, pytest.raises(RunFolderError, match=r"damaged.*Remove"):
        run.has("stage", "key")


def test_foreign_folders_are_refused_and_untouched(tmp_path):
    (tmp_path / "mine.txt").write_text("precious")
    with pytest.raises(RunFolderError, match="not a run folder"), Run(tmp_path):
        pass
    assert [p.name for p in tmp_path.iterdir()] == ["mine.txt"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("not json", "not a readable JSON"),
        ("[]", "not written by snacs"),
        ('{"format": "other"}', "not written by snacs"),
        ('{"format": "snacs-run", "version": 99}', "another version"),
    ],
)
def test_a_wrong_mark_is_refused(tmp_path, content, message):
    (tmp_path / "run.json").write_text(content)
    with pytest.raises(RunFolderError, match=message), Run(tmp_path):
        pass


def test_a_file_in_place_of_the_folder_is_refused(tmp_path):
    (tmp_path / "run").write_text("x")
    with pytest.raises(RunFolderError, match="is a file"), Run(tmp_path / "run"):
        pass


def _try_lock(folder: Path, answer) -> None:
    try:
        with Run(folder):
            answer.put("entered")
    except RunFolderError as error:
        answer.put(str(error))


def test_two_writers_are_kept_apart(tmp_path):
    context = multiprocessing.get_context("spawn")
    answer = context.Queue()
    with Run(tmp_path / "run"):
        other = context.Process(target=_try_lock, args=(tmp_path / "run", answer))
        other.start()
        assert "in use by another" in answer.get(timeout=60)
        other.join()
    other = context.Process(target=_try_lock, args=(tmp_path / "run", answer))
    other.start()
    assert answer.get(timeout=60) == "entered"
    other.join()


def test_a_temporary_run_leaves_nothing_behind():
    with Run(None) as run:
        folder = run.folder
        run.once("stage", "key", _write("x", []))
        assert (folder / "stage" / "value.txt").exists()
    assert not folder.exists()


def test_facts_are_kept_with_the_run(tmp_path):
    with Run(tmp_path / "run") as run:
        run.note(command="snacs prune")
        run.note(seed=3)
    assert read_run(tmp_path / "run")["command"] == "snacs prune"
    assert read_run(tmp_path / "run")["seed"] == 3


def test_a_full_disk_is_said_plainly_and_leaves_the_old_files(tmp_path):
    write_folder(tmp_path / "stage", _write("old", []))

    def full(folder: Path) -> None:
        (folder / "value.txt").write_text("new, half")
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(RunFolderError, match="disk is full"):
        write_folder(tmp_path / "stage", full)
    assert (tmp_path / "stage" / "value.txt").read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["stage"]


def test_leftovers_of_a_killed_process_are_cleared(tmp_path):
    with Run(tmp_path / "run") as run:
        run.once("scores/000-a", "key", _write("x", []))
    left = tmp_path / "run" / "scores" / ".001-b.half"
    left.mkdir()
    (left / "half.npy").write_text("half")
    with Run(tmp_path / "run") as run:
        assert not left.exists()
        assert run.has("scores/000-a", "key")


def test_keys_depend_on_every_part_and_slugs_are_safe():
    assert key_of(a=1, b=[1, 2]) != key_of(a=1, b=[2, 1])
    assert "/" not in slug(0, "../../etc")
    assert slug(1, "x") != slug(2, "x")
    assert len(slug(1, "y" * 500)) < 100


def test_a_folder_in_which_somebody_got_no_further_than_the_lock_is_new(tmp_path):
    (tmp_path / ".lock").touch()
    (tmp_path / ".run.json.half").write_text("{")
    with Run(tmp_path) as run:
        run.once("stage", "key", _write("x", []))
    assert read_run(tmp_path)["format"] == "snacs-run"
    assert not (tmp_path / ".run.json.half").exists()


def test_places_where_no_folder_can_be_are_named(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(RunFolderError, match="cannot be made"), Run(tmp_path / "file" / "run"):
        pass
    with Run(tmp_path / "run") as run:
        (run.folder / "scores").write_text("in the way")
        with pytest.raises(RunFolderError, match="something else stands there"):
            run.once("scores/000-a", "key", _write("x", []))
    with pytest.raises(RunFolderError, match="There is no run folder"):
        read_run(tmp_path / "gone")

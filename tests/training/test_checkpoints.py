"""Checkpoints are whole, verified, and only read by the run that made them."""

from __future__ import annotations

import pytest
import torch

from snacs.errors import RunFolderError
from snacs.training import checkpoints

KEY = {"seed": 0, "recipe.learning_rate": 0.1}


def state(value):
    return {"key": KEY, "rows": [{"epoch": 1}], "model": {"w": torch.full((3,), float(value))}}


def test_the_newest_is_read_and_two_are_kept(tmp_path):
    for epoch in (1, 2, 10):
        checkpoints.save(tmp_path, epoch, state(epoch))
    found, notes = checkpoints.load(tmp_path, KEY)
    assert torch.equal(found["model"]["w"], torch.full((3,), 10.0))
    assert notes == []
    assert len(list(tmp_path.iterdir())) == 2


def test_an_empty_or_missing_folder_has_nothing(tmp_path):
    assert checkpoints.load(tmp_path / "none", KEY) == (None, [])


@pytest.mark.parametrize("harm", ["cut", "flip", "empty"])
def test_a_damaged_file_is_passed_over(tmp_path, harm):
    checkpoints.save(tmp_path, 1, state(1))
    path = checkpoints.save(tmp_path, 2, state(2))
    content = bytearray(path.read_bytes())
    if harm == "flip":
        content[len(content) // 2] ^= 1
    path.write_bytes({"cut": content[:-50], "flip": content, "empty": b""}[harm])
    found, notes = checkpoints.load(tmp_path, KEY)
    assert torch.equal(found["model"]["w"], torch.ones(3))
    assert len(notes) == 1
    assert path.name in notes[0]


def test_only_damaged_files_are_an_error(tmp_path):
    checkpoints.save(tmp_path, 1, state(1)).write_bytes(b"x")
    with pytest.raises(RunFolderError, match="damaged"):
        checkpoints.load(tmp_path, KEY)


def test_another_key_is_refused_and_named(tmp_path):
    checkpoints.save(tmp_path, 1, state(1))
    with pytest.raises(RunFolderError, match=r"learning_rate was 0\.1 and is now 0\.2"):
        checkpoints.load(tmp_path, {**KEY, "recipe.learning_rate": 0.2})


def test_leftovers_of_a_killed_writer_go(tmp_path):
    (tmp_path / ".epoch-00001-abc.pt.tmp").write_bytes(b"half")
    assert checkpoints.load(tmp_path, KEY) == (None, [])
    assert list(tmp_path.iterdir()) == []


class Evil:
    def __reduce__(self):
        return (print, ("executed",))


def test_nothing_in_a_file_is_executed(tmp_path, capsys):
    path = checkpoints.save(tmp_path, 1, {"key": KEY, "bad": Evil()})
    with pytest.raises(RunFolderError, match="damaged"):
        checkpoints.load(tmp_path, KEY)
    assert path.exists()
    assert capsys.readouterr().out == ""

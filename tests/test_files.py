"""Files are replaced in one step, and nothing but files is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from snacs.errors import InputError, RunFolderError
from snacs.files import replacing, write_file, write_folder


def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "net.onnx"
    write_file(path, b"old")

    def fail() -> None:
        with replacing(path) as fresh:
            fresh.write_bytes(b"ne")
            raise RuntimeError("half-way")

    with pytest.raises(RuntimeError, match="half-way"):
        fail()
    assert path.read_bytes() == b"old"
    assert [file.name for file in tmp_path.iterdir()] == ["net.onnx"]


def test_folders_and_devices_are_not_replaced(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for target in (tmp_path, pipe):
        with pytest.raises(InputError, match="folder or a device"):
            write_file(target, b"new")
    assert pipe.is_fifo()
    file = tmp_path / "file"
    file.write_bytes(b"old")
    with pytest.raises(InputError, match="is a file"):
        write_folder(file, lambda _: None)
    assert file.read_bytes() == b"old"


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs /proc")
def test_a_place_that_holds_no_files_is_named():
    with pytest.raises(RunFolderError, match=r"Could not write /proc/net\.onnx"):
        write_file(Path("/proc/net.onnx"), b"new")

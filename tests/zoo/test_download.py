"""Fetching CIFAR-10 from a real HTTP server on this machine, and all that can go wrong."""

import hashlib
import io
import tarfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from snacs.errors import InputError
from snacs.zoo.data import cifar, open_data
from snacs.zoo.download import OFFICIAL, Release, fetch_cifar10, verify

Tiny = tuple[Path, Release]


@dataclass
class Server:
    """What it serves, how badly, and what it was asked for."""

    url: str
    content: bytes = b""
    cut_after: int | None = None
    ranges: bool = True
    status: int = 200
    asked: list[str | None] = field(default_factory=list)

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        wanted = handler.headers.get("Range")
        self.asked.append(wanted)
        start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted and self.ranges else 0
        status = self.status if self.status != 200 or not start else 206
        if start >= len(self.content) > 0:
            status = 416
        body = self.content[start:]
        handler.send_response(status)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body[: self.cut_after])


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            state.answer(self)

        def log_message(self, *args: object) -> None:
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state = Server(f"http://127.0.0.1:{http.server_port}/cifar.tar.gz")
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield state
    http.shutdown()
    thread.join()
    http.server_close()


def packed(folder: Path, *, extra: tarfile.TarInfo | None = None) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as tar:
        if extra is not None:
            tar.addfile(extra, io.BytesIO(b"x" * extra.size))
        tar.add(folder, arcname=cifar.FOLDER)
    return stream.getvalue()


def published(tiny: Tiny, server: Server) -> Release:
    server.content = packed(tiny[0])
    digest = hashlib.sha256(server.content).hexdigest()
    return replace(tiny[1], url=server.url, sha256=digest)


def left_in(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir()) if folder.exists() else []


def test_download_checks_extracts_and_is_reused(
    tiny_cifar10: Tiny, server: Server, tmp_path: Path
) -> None:
    release = published(tiny_cifar10, server)
    calls: list[tuple[int, int | None]] = []
    fetched = fetch_cifar10(
        tmp_path / "data", release=release, progress=lambda *call: calls.append(call)
    )
    assert fetched.folder == tmp_path / "data" / cifar.FOLDER
    assert fetched.checked.startswith("SHA-256 of the archive; SHA-256 of every file")
    assert calls[-1] == (len(server.content), len(server.content))
    assert left_in(tmp_path / "data") == [cifar.FOLDER]
    assert left_in(fetched.folder) == sorted([*release.files, cifar.NAMES_FILE])
    assert len(open_data(f"cifar10:{tmp_path / 'data'}", split="train")) == 150
    again = fetch_cifar10(tmp_path / "data", release=release)
    assert again.reused
    assert len(server.asked) == 1


def test_a_broken_download_goes_on_where_it_stopped(
    tiny_cifar10: Tiny, server: Server, tmp_path: Path
) -> None:
    release = published(tiny_cifar10, server)
    server.cut_after = 1000
    with pytest.raises(InputError, match=r"ended after 1000 of .* run the same command again"):
        fetch_cifar10(tmp_path / "data", release=release)
    assert not (tmp_path / "data" / cifar.FOLDER).exists()
    server.cut_after = None
    fetched = fetch_cifar10(tmp_path / "data", release=release)
    assert server.asked == [None, "bytes=1000-"]
    assert verify(fetched.folder, release=release).startswith("SHA-256")
    assert left_in(tmp_path / "data") == [cifar.FOLDER]


def test_a_server_that_cannot_go_on_starts_again(
    tiny_cifar10: Tiny, server: Server, tmp_path: Path
) -> None:
    release = published(tiny_cifar10, server)
    server.cut_after = 1000
    with pytest.raises(InputError):
        fetch_cifar10(tmp_path / "data", release=release)
    server.cut_after, server.ranges = None, False
    assert fetch_cifar10(tmp_path / "data", release=release).checked.startswith("SHA-256")


def test_a_complete_part_is_used_and_a_wrong_one_thrown_away(
    tiny_cifar10: Tiny, server: Server, tmp_path: Path
) -> None:
    release = published(tiny_cifar10, server)
    part = tmp_path / "data" / ".cifar-10-binary.tar.gz.part"
    part.parent.mkdir()
    part.write_bytes(server.content)
    assert fetch_cifar10(tmp_path / "data", release=release).checked.startswith("SHA-256")
    part.parent.joinpath(cifar.FOLDER).rename(tmp_path / "away")
    part.write_bytes(b"?" * len(server.content))
    with pytest.raises(InputError, match="not the complete archive"):
        fetch_cifar10(tmp_path / "data", release=release)
    assert left_in(tmp_path / "data") == []


def test_other_images_are_refused_unless_accepted(
    tiny_cifar10: Tiny, server: Server, tmp_path: Path
) -> None:
    folder, _ = tiny_cifar10
    release = published(tiny_cifar10, server)
    content = bytearray((folder / "test_batch.bin").read_bytes())
    content[100] ^= 1
    (folder / "test_batch.bin").write_bytes(content)
    server.content = packed(folder)
    with pytest.raises(InputError, match=r"SHA-256 of test_batch\.bin in the archive is not"):
        fetch_cifar10(tmp_path / "data", release=release)
    assert left_in(tmp_path / "data") == []
    fetched = fetch_cifar10(tmp_path / "data", release=release, check_hash=False)
    assert fetched.checked == (
        "sizes and class counts; SHA-256 differs from the official in 1 files"
    )


def test_a_repacked_mirror_with_the_same_files_is_accepted(
    tiny_cifar10: Tiny, server: Server, tmp_path: Path
) -> None:
    server.content = packed(tiny_cifar10[0])
    fetched = fetch_cifar10(tmp_path / "data", url=server.url, release=tiny_cifar10[1])
    assert fetched.checked == "SHA-256 of every file, sizes and class counts"


def test_class_counts_are_checked_whatever_the_hash(tiny_cifar10: Tiny, tmp_path: Path) -> None:
    folder, release = tiny_cifar10
    content = bytearray((folder / "data_batch_2.bin").read_bytes())
    content[0] = 9
    (folder / "data_batch_2.bin").write_bytes(content)
    with pytest.raises(InputError, match=r"training images .* must be 15 per class. Got \[14, 15"):
        fetch_cifar10(tmp_path / "data", source=folder, check_hash=False, release=release)
    content[0] = 200
    (folder / "data_batch_2.bin").write_bytes(content)
    with pytest.raises(InputError, match="label 200"):
        fetch_cifar10(tmp_path / "data", source=folder, check_hash=False, release=release)
    assert left_in(tmp_path / "data") == []


@pytest.mark.parametrize("kind", ["folder", "above", "archive"])
def test_local_sources(tiny_cifar10: Tiny, tmp_path: Path, kind: str) -> None:
    folder, release = tiny_cifar10
    archive = tmp_path / "a.tar.gz"
    archive.write_bytes(packed(folder))
    source = {"folder": folder, "above": folder.parent, "archive": archive}[kind]
    fetched = fetch_cifar10(tmp_path / "data", source=source, release=release)
    assert verify(fetched.folder, release=release).startswith("SHA-256 of every file")
    assert archive.exists()
    assert (folder / "test_batch.bin").exists()


def member(name: str, *, link: str | None = None) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.size = 0 if link else 4
    if link:
        info.type, info.linkname = tarfile.SYMTYPE, link
    return info


@pytest.mark.parametrize(
    "extra",
    [member("../evil"), member("a/../../evil"), member("here", link="../../evil")],
    ids=["parent", "inside", "link"],
)
def test_archives_that_lead_out_of_their_folder_are_refused(
    tiny_cifar10: Tiny, tmp_path: Path, extra: tarfile.TarInfo
) -> None:
    folder, release = tiny_cifar10
    archive = tmp_path / "evil.tar.gz"
    archive.write_bytes(packed(folder, extra=extra))
    before = sorted(p.name for p in tmp_path.rglob("*"))
    with pytest.raises(InputError, match="outside its folder"):
        fetch_cifar10(tmp_path / "data", source=archive, release=release)
    assert sorted(p.name for p in tmp_path.rglob("*")) == sorted([*before, "data"])
    assert left_in(tmp_path / "data") == []


def test_links_and_wrong_sizes_in_place_of_files_are_not_extracted(
    tiny_cifar10: Tiny, tmp_path: Path
) -> None:
    folder, release = tiny_cifar10
    archive = tmp_path / "a.tar.gz"
    (folder / "test_batch.bin").unlink()
    (folder / "test_batch.bin").symlink_to("data_batch_1.bin")
    archive.write_bytes(packed(folder))
    with pytest.raises(InputError, match=r"the archive/test_batch\.bin is missing"):
        fetch_cifar10(tmp_path / "data", source=archive, release=release)
    (folder / "test_batch.bin").unlink()
    (folder / "test_batch.bin").write_bytes(b"1" * (release.file_size + 1))
    archive.write_bytes(packed(folder))
    with pytest.raises(InputError, match=r"the archive/test_batch\.bin is missing"):
        fetch_cifar10(tmp_path / "data", source=archive, release=release)
    assert left_in(tmp_path / "data") == []


def test_truncated_and_foreign_archives(tiny_cifar10: Tiny, tmp_path: Path) -> None:
    folder, release = tiny_cifar10
    whole = packed(folder)
    archive = tmp_path / "a.tar.gz"
    for content in (whole[: len(whole) // 2], whole[:20], b"", b"hello"):
        archive.write_bytes(content)
        with pytest.raises(InputError, match="not the complete archive"):
            fetch_cifar10(tmp_path / "data", source=archive, release=release)
        assert left_in(tmp_path / "data") == []


def test_a_damaged_folder_already_there_is_named(tiny_cifar10: Tiny, tmp_path: Path) -> None:
    folder, release = tiny_cifar10
    fetched = fetch_cifar10(tmp_path / "data", source=folder, release=release)
    path = fetched.folder / "data_batch_4.bin"
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(InputError, match=r"data_batch_4\.bin has \d+ bytes; it must have"):
        fetch_cifar10(tmp_path / "data", source=folder, release=release)
    path.unlink()
    with pytest.raises(InputError, match=r"data_batch_4\.bin is missing"):
        fetch_cifar10(tmp_path / "data", source=folder, release=release)


def test_no_network_wrong_address_and_wrong_arguments(server: Server, tmp_path: Path) -> None:
    # Port 9 (discard) is closed on any sane machine.
    with pytest.raises(InputError, match=r"could not be downloaded.*cifar10_from_npm"):
        fetch_cifar10(tmp_path, url="http://127.0.0.1:9/x.tar.gz")
    server.status = 404
    with pytest.raises(InputError, match="answered 404 Not Found"):
        fetch_cifar10(tmp_path, url=server.url)
    with pytest.raises(InputError, match="http:// or https://"):
        fetch_cifar10(tmp_path, url="file:///etc/passwd")
    with pytest.raises(InputError, match="not both"):
        fetch_cifar10(tmp_path, url=server.url, source=tmp_path)
    with pytest.raises(InputError, match="no archive or folder"):
        fetch_cifar10(tmp_path, source=tmp_path / "none.tar.gz")
    assert left_in(tmp_path) == []


def test_the_official_release_is_what_toronto_describes() -> None:
    assert OFFICIAL.file_size == 10_000 * 3073
    assert set(OFFICIAL.files) == {*cifar.TRAIN_FILES, cifar.TEST_FILE}
    assert all(len(digest) == 64 for digest in (OFFICIAL.sha256, *OFFICIAL.files.values()))


@pytest.mark.shared
def test_the_real_data_are_the_official_ones(real_cifar10: Path) -> None:
    assert verify(real_cifar10) == "SHA-256 of every file, sizes and class counts"

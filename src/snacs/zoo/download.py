"""Getting CIFAR-10: download or copy, check, put in place in one step.

Whatever the source, the six files must be the official ones, byte for byte, unless the caller
says ``check_hash=False``; sizes and class counts are checked always.
"""

from __future__ import annotations

import hashlib
import http.client
import shutil
import ssl
import tarfile
import urllib.error
import urllib.parse
import urllib.request
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from snacs.errors import InputError
from snacs.files import clear_disk_errors, write_folder
from snacs.zoo.data import cifar

Progress = Callable[[int, int | None], None]
"""Called with the bytes that are there and the bytes that there will be, if known."""

_CHUNK = 1 << 20
_TIMEOUT = 30.0
_NETWORK_ERRORS = (
    *(http.client.HTTPException, urllib.error.URLError),
    *(ConnectionError, TimeoutError, ssl.SSLError),
)


@dataclass(frozen=True)
class Release:
    """What the publisher put out: where, and what must arrive.

    Attributes
    ----------
    sha256 : of the archive.
    files : SHA-256 of each data file in it.
    train_per_class, test_per_class : images per class; all six files are equally long.
    """

    url: str
    sha256: str
    files: Mapping[str, str]
    train_per_class: int
    test_per_class: int

    @property
    def file_size(self) -> int:
        return self.test_per_class * len(cifar.NAMES) * cifar.RECORD


OFFICIAL = Release(
    url="https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
    sha256="c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
    files=MappingProxyType(
        {
            "data_batch_1.bin": "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
            "data_batch_2.bin": "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
            "data_batch_3.bin": "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
            "data_batch_4.bin": "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
            "data_batch_5.bin": "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
            "test_batch.bin": "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
        }
    ),
    train_per_class=5000,
    test_per_class=1000,
)


@dataclass(frozen=True)
class Fetched:
    """Where the data are, and how far they were checked (one line for people)."""

    folder: Path
    checked: str
    reused: bool = False


def fetch_cifar10(
    folder: Path | None = None,
    *,
    url: str | None = None,
    source: Path | None = None,
    check_hash: bool = True,
    progress: Progress | None = None,
    release: Release = OFFICIAL,
) -> Fetched:
    """Put CIFAR-10 into ``folder/cifar-10-batches-bin``; do nothing but check if it is there.

    An interrupted download goes on where it stopped when the same call is made again. The folder
    appears only when everything in it has been checked.

    Parameters
    ----------
    folder : default :func:`~snacs.zoo.data.cifar.data_folder`.
    url : a mirror of the archive; default the official one.
    source : a local archive, or a local folder with the six files, instead of a download.
    check_hash : False accepts other images than the official ones, if sizes and class counts fit.
    """
    if url is not None and source is not None:
        raise InputError("Give 'url' or 'source', not both.")
    folder = cifar.data_folder() if folder is None else Path(folder)
    target = folder / cifar.FOLDER
    if target.exists():
        checked = verify(target, check_hash=check_hash, release=release)
        return Fetched(target, checked, reused=True)
    if source is not None and Path(source).is_dir():
        origin = cifar.find_folder(Path(source))
        checked = verify(origin, check_hash=check_hash, release=release)
        write_folder(target, lambda fresh: _copy(origin, fresh))
        return Fetched(target, checked)
    if source is not None:
        archive = Path(source)
        if not archive.is_file():
            raise InputError(f"There is no archive or folder {archive}.")
        return Fetched(target, _unpack(archive, target, check_hash, release))
    archive = folder / ".cifar-10-binary.tar.gz.part"
    _download(url or release.url, archive, progress)
    try:
        checked = _unpack(archive, target, check_hash, release)
    except InputError:
        # Complete and wrong: going on from it would never help.
        archive.unlink(missing_ok=True)
        raise
    archive.unlink(missing_ok=True)
    return Fetched(target, checked)


def verify(folder: Path, *, check_hash: bool = True, release: Release = OFFICIAL) -> str:
    """Check a folder's files; returns what was checked, raises what is wrong."""
    counts = {True: np.zeros(len(cifar.NAMES), int), False: np.zeros(len(cifar.NAMES), int)}
    differing = []
    for name, expected in release.files.items():
        path = folder / name
        size = path.stat().st_size if path.is_file() else None
        if size != release.file_size:
            found = "is missing" if size is None else f"has {size} bytes"
            raise InputError(
                f"{path} {found}; it must have {release.file_size}. Delete {folder} if it is "
                "yours to delete, and run `snacs data cifar10` again."
            )
        content = path.read_bytes()
        labels = np.frombuffer(content, dtype=np.uint8)[:: cifar.RECORD]
        counts[name == cifar.TEST_FILE] += _class_counts(path, labels)
        if hashlib.sha256(content).hexdigest() != expected:
            differing.append(name)
    for is_test, wanted in ((False, release.train_per_class), (True, release.test_per_class)):
        if (counts[is_test] != wanted).any():
            raise InputError(
                f"The {'test' if is_test else 'training'} images in {folder} must be {wanted} per "
                f"class. Got {counts[is_test].tolist()}. This is not the official CIFAR-10."
            )
    if differing and check_hash:
        raise InputError(
            f"The SHA-256 of {', '.join(differing)} in {folder} is not that of the official "
            "CIFAR-10. Get it again, or, if other images are wanted, accept them in Python with "
            "snacs.zoo.download.fetch_cifar10(..., check_hash=False)."
        )
    if differing:
        return (
            f"sizes and class counts; SHA-256 differs from the official in {len(differing)} files"
        )
    return "SHA-256 of every file, sizes and class counts"


def _class_counts(path: Path, labels: NDArray[np.uint8]) -> NDArray[np.intp]:
    if labels.max() >= len(cifar.NAMES):
        raise InputError(f"{path} holds the label {labels.max()}; CIFAR-10 has 0 to 9.")
    return np.bincount(labels, minlength=len(cifar.NAMES))


def write_names(folder: Path) -> None:
    """The file with the class names, as in the official archive."""
    (folder / cifar.NAMES_FILE).write_text("\n".join(cifar.NAMES) + "\n\n", encoding="ascii")


def _copy(origin: Path, fresh: Path) -> None:
    for name in (*cifar.TRAIN_FILES, cifar.TEST_FILE):
        shutil.copyfile(origin / name, fresh / name)
    write_names(fresh)


def _unpack(archive: Path, target: Path, check_hash: bool, release: Release) -> str:
    """Extract and check in a fresh folder, then swap it in."""
    official = _sha256(archive) == release.sha256
    checked = ""

    def fill(fresh: Path) -> None:
        nonlocal checked
        try:
            _extract(archive, fresh, release)
        except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise
            raise InputError(
                f"{archive} is not the complete archive of CIFAR-10 ({error}). Download it again: "
                "run the same command."
            ) from error
        write_names(fresh)
        try:
            checked = verify(fresh, check_hash=check_hash, release=release)
        except InputError as error:
            # The fresh folder is gone by the time anyone reads this.
            raise InputError(
                f"The archive does not hold the official CIFAR-10; nothing was kept. "
                f"{str(error).replace(str(fresh), 'the archive')}"
            ) from error

    write_folder(target, fill)
    return f"SHA-256 of the archive; {checked}" if official else checked


def _extract(archive: Path, fresh: Path, release: Release) -> None:
    """Only the six files, only from a tar without a member that leads out of its folder."""
    with tarfile.open(archive, "r:*") as tar:
        for member in tar:
            try:
                safe = tarfile.data_filter(member, str(fresh))
            except tarfile.FilterError as error:
                raise InputError(
                    f"{archive} holds {member.name!r}, which would be written outside its folder. "
                    "This archive is not to be trusted; nothing was extracted."
                ) from error
            name = Path(member.name).name
            # The size is checked before anything is written, so no archive can fill the disk.
            if name in release.files and safe.isreg() and safe.size == release.file_size:
                stream = tar.extractfile(member)
                if stream is not None:
                    with (fresh / name).open("wb") as file:
                        shutil.copyfileobj(stream, file, _CHUNK)


def _download(url: str, part: Path, progress: Progress | None) -> None:
    """Bring ``part`` to its full length, going on from what is there."""
    if urllib.parse.urlsplit(url).scheme not in ("http", "https"):
        raise InputError(f"'url' must begin with http:// or https://. Got {url!r}.")
    with clear_disk_errors(part):
        part.parent.mkdir(parents=True, exist_ok=True)
        have = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(url, headers={"User-Agent": "snacs"})
    if have:
        request.add_header("Range", f"bytes={have}-")
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT) as response:
            _receive(response, part, have if response.status == 206 else 0, progress)
    except urllib.error.HTTPError as error:
        if error.code == 416:
            # The part is as long as the file or longer; unpacking will tell which.
            return
        raise InputError(
            f"{url} answered {error.code} {error.reason}. Give a mirror with --url, or a local "
            "copy with --source."
        ) from error
    except _NETWORK_ERRORS as e:
        raise InputError(
            f"{url} could not be downloaded: {getattr(e, 'reason', None) or e}. Check the network "
            "and run the same command again (it goes on where it stopped), give a mirror with "
            "--url, or a local copy with --source. Where only npm can be reached, a checkout has "
            "scripts/cifar10_from_npm.py."
        ) from e


def _receive(
    response: http.client.HTTPResponse, part: Path, have: int, progress: Progress | None
) -> None:
    length = response.headers.get("Content-Length")
    total = have + int(length) if length is not None else None
    with clear_disk_errors(part), part.open("ab" if have else "wb") as file:
        while chunk := response.read(_CHUNK):
            file.write(chunk)
            have += len(chunk)
            if progress is not None:
                progress(have, total)
    if total is not None and have != total:
        raise ConnectionError(f"the connection ended after {have} of {total} bytes")


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()

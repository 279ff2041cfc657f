"""Reads files whose names hold their digests: what is checked is a private copy, and the copy is what is loaded."""

from collections.abc import Generator
from contextlib import contextmanager
import hashlib
from io import BytesIO
import os
from pathlib import Path
import re
import stat
from tempfile import TemporaryDirectory, TemporaryFile
from typing import BinaryIO, Protocol

IN_MEMORY = 1 << 30
"""Bytes of a copy in memory, at most. A larger one is a file without a name."""
_CHUNK = 1 << 20
_SHA256 = re.compile(r"[0-9a-f]{64}")
_GIT = re.compile(r"[0-9a-f]{40}")
_LOADED = (".json", ".txt", ".model", ".jinja", ".safetensors")
"""Suffixes of the files of a snapshot that transformers may load."""


class _Hash(Protocol):
    def update(self, data: bytes, /) -> None: ...

    def hexdigest(self) -> str: ...


def private_copy(file: BinaryIO) -> tuple[BinaryIO, str]:
    """Returns a copy that no other program can change, and its sha256. Raises OSError."""
    if os.fstat(file.fileno()).st_size < IN_MEMORY:
        content = file.read(IN_MEMORY)
        return BytesIO(content), hashlib.sha256(content).hexdigest()
    copy, sha256 = TemporaryFile(), hashlib.sha256()  # noqa: SIM115
    _copy(file, copy, sha256)
    copy.seek(0)
    return copy, sha256.hexdigest()


def open_regular(file: Path) -> BinaryIO:
    """Opens a file for reading. Raises OSError, also if it is not regular, such as a pipe that would block."""
    descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(f"{file} is not a regular file")
    return os.fdopen(descriptor, "rb")


@contextmanager
def checked_snapshot(folder: Path) -> Generator[Path]:
    """Yields `folder`, or a private copy if it is a snapshot in a cache of Hugging Face, whose digests it checks.

    The files of a snapshot are links to blobs with a digest as name. Raises OSError, and ValueError for a blob that
    does not have the digest.
    """
    if not any(file.is_symlink() and file.resolve().parent.name == "blobs" for file in folder.iterdir()):
        yield folder
        return
    with TemporaryDirectory(prefix="torchyard-") as copy:
        for file in folder.iterdir():
            if file.suffix in _LOADED and file.is_file():
                _copy_blob(file.resolve(), Path(copy, file.name))
        yield Path(copy)


def _copy_blob(blob: Path, target: Path) -> None:
    with open_regular(blob) as source, target.open("xb") as copy:
        if _GIT.fullmatch(blob.name):
            digest = hashlib.sha1(b"blob %d\0" % os.fstat(source.fileno()).st_size, usedforsecurity=False)
        else:
            digest = hashlib.sha256()
        _copy(source, copy, digest)
    named = _GIT.fullmatch(blob.name) or _SHA256.fullmatch(blob.name)
    if named and digest.hexdigest() != blob.name:
        raise ValueError(f"{blob} does not have the digest that its name says: remove it and download it again")


def _copy(source: BinaryIO, target: BinaryIO, digest: _Hash) -> None:
    while chunk := source.read(_CHUNK):
        digest.update(chunk)
        target.write(chunk)

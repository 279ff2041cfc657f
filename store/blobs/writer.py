"""Writes one new blob. It is hashed as it is written."""

from collections.abc import Callable
from dataclasses import dataclass
import hashlib
import os
from pathlib import Path
from typing import BinaryIO, TypeAlias

from torchyard.host.failpoints import failpoint

CHUNK = 1 << 20


@dataclass(frozen=True)
class Blob:
    sha256: str
    size: int


class _Hashing:
    """Hashes what is copied, in any number of calls."""

    def __init__(self, beside: Callable[[bytes], object] | None) -> None:
        self.size = 0
        """Bytes copied so far."""
        self._beside = beside
        self._digest = hashlib.sha256()

    def copy_from(self, source: BinaryIO, limit: int) -> int:
        """Copies at most `limit` bytes of `source` and returns their number; 0 at its end. Raises OSError."""
        copied = 0
        while copied < limit and (chunk := source.read(min(CHUNK, limit - copied))):
            self._digest.update(chunk)
            if self._beside is not None:
                self._beside(chunk)
            self._write(chunk)
            copied += len(chunk)
        self.size += copied
        return copied

    @property
    def blob(self) -> Blob:
        """The digest and size of what was copied so far."""
        return Blob(self._digest.hexdigest(), self.size)

    def _write(self, chunk: bytes) -> None:
        pass


class BlobWriter(_Hashing):
    """Writes a blob, in any number of calls, to a file that has no name in a store yet.

    Call `discard` in the end; it does nothing once the file has its name.
    """

    def __init__(self, path: Path, beside: Callable[[bytes], object] | None = None, *, is_durable: bool = True) -> None:
        """Makes the file. `beside` gets all bytes that are copied into it. Raises OSError.

        `is_durable`: False for a file that is given up if this host loses its power.
        """
        super().__init__(beside)
        self._is_durable = is_durable
        self._path = path
        self._file = create_private(path)

    def sync(self) -> None:
        """Makes the copied bytes durable, so that `finish` takes less time. Raises OSError."""
        if self._is_durable:
            os.fdatasync(self._file.fileno())

    def finish(self) -> Blob:
        """Ends the blob and makes it durable. Raises OSError."""
        failpoint("blob.fsync")
        if self._is_durable:
            os.fsync(self._file.fileno())
        self._file.close()
        return self.blob

    @property
    def path(self) -> Path:
        """The file, until it gets its name."""
        return self._path

    def open(self) -> BinaryIO:
        """Opens the finished file for reading. Raises OSError."""
        return self._path.open("rb", buffering=0)

    def discard(self) -> None:
        """Removes the file unless it has its name. Raises OSError."""
        self._file.close()
        self._path.unlink(missing_ok=True)

    def _write(self, chunk: bytes) -> None:
        write_all(self._file, chunk)


class HashedFile(_Hashing):
    """A file of a job that nobody changes any more: it is hashed in place of a copy, and lent."""

    def __init__(self, opened: Callable[[], BinaryIO], beside: Callable[[bytes], object] | None = None) -> None:
        """`opened`: opens it for reading, and raises DataError and OSError. `beside` gets all bytes of it."""
        super().__init__(beside)
        self.open = opened

    def sync(self) -> None:
        pass

    def finish(self) -> Blob:
        return self.blob

    def discard(self) -> None:
        """Does nothing: it is the job's own."""


@dataclass(frozen=True)
class LentFile:
    """A file of a job that is sent from where it lies, without a copy. Who gets it checks its digest."""

    blob: Blob
    """What the file should be."""
    opened: Callable[[], BinaryIO]
    """Opens it for reading. Raises DataError and OSError."""

    def open(self) -> BinaryIO:
        return self.opened()

    def discard(self) -> None:
        """Does nothing: it is the job's own."""


FinishedBlob: TypeAlias = BlobWriter | HashedFile | LentFile
"""A blob that can be put into a store; a file that is lent only into one to which blobs travel."""


def copy_file(source: BinaryIO, target: Path, check: Callable[[], object] = lambda: None) -> str:
    """Copies `source` to a new file, makes it durable, and returns its sha256. Raises OSError.

    `check` is called before each part, and may raise to end the copy.
    """
    digest = hashlib.sha256()
    with create_private(target) as file:
        while chunk := source.read(CHUNK):
            check()
            digest.update(chunk)
            write_all(file, chunk)
        failpoint("blob.fsync")
        os.fsync(file.fileno())
    return digest.hexdigest()


def create_private(path: Path) -> BinaryIO:
    """Makes a file that only this user may read. Raises OSError, also if there is one."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    return os.fdopen(descriptor, "wb", buffering=0)


def write_all(file: BinaryIO, data: bytes) -> None:
    """Writes all of `data` to a file without a buffer. Raises OSError."""
    left = memoryview(data)
    while left:
        left = left[file.write(left) :]

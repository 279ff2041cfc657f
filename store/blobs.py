"""Blobs: immutable files named by their sha256, in a local or shared directory."""

from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
import fcntl
import hashlib
import os
from pathlib import Path
import shutil
import time
from typing import BinaryIO
from uuid import uuid4

from torchyard.contract.errors import NotFound
from torchyard.contract.failpoints import failpoint
from torchyard.contract.recordfiles import sync_folder

_CHUNK = 1 << 20
_ABANDONED_S = 24 * 3600


@dataclass(frozen=True)
class Blob:
    sha256: str
    size: int


@dataclass(frozen=True)
class DiskSpace:
    """Bytes of a disk."""

    total: int
    free: int


class BlobWriter:
    """A blob that is being made, in as many turns as its maker likes: no name in the store is taken before `publish`.

    It is the maker's to `discard` in the end, which does nothing after `publish`.
    """

    def __init__(self, blobs: "Blobs", path: Path) -> None:
        self.size = 0
        """Bytes taken so far."""
        self._blobs = blobs
        self._path = path
        self._digest = hashlib.sha256()
        self._file = _new(path)

    def copy_from(self, source: BinaryIO, limit: int) -> int:
        """Copies at most `limit` bytes of `source`, and answers how many; 0 at its end. Raises OSError."""
        taken = 0
        while taken < limit and (chunk := source.read(min(_CHUNK, limit - taken))):
            self._digest.update(chunk)
            _write(self._file, chunk)
            taken += len(chunk)
        self.size += taken
        return taken

    def sync(self) -> None:
        """Makes what was taken durable, so that `finish` has little left to do. Raises OSError."""
        os.fdatasync(self._file.fileno())

    def finish(self) -> Blob:
        """What was taken is all, and durable. Raises OSError."""
        failpoint("blob.fsync")
        os.fsync(self._file.fileno())
        self._file.close()
        return Blob(self._digest.hexdigest(), self.size)

    def publish(self) -> None:
        """Names the finished blob; durable when this returns. In place of one that is there, which may be damaged.

        Raises OSError.
        """
        target = self._blobs.path(self._digest.hexdigest())
        target.parent.mkdir(exist_ok=True)
        failpoint("blob.rename")
        self._path.rename(target)
        failpoint("blob.renamed")
        sync_folder(target.parent)
        sync_folder(self._blobs.root)

    def discard(self) -> None:
        """Removes what has no name yet. Raises OSError."""
        self._file.close()
        self._path.unlink(missing_ok=True)


class Blobs:
    """A directory of blobs that any number of processes share."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._incoming = root / "incoming"

    def add(self, source: BinaryIO) -> Blob:
        """Copies `source` to its end, hashing what is copied; durable when this returns. Raises OSError."""
        writer = self.create()
        try:
            while writer.copy_from(source, _CHUNK):
                pass
            blob = writer.finish()
            writer.publish()
        finally:
            writer.discard()
        return blob

    def create(self) -> BlobWriter:
        """A new blob, empty and without a name. Raises OSError."""
        self._incoming.mkdir(mode=0o700, parents=True, exist_ok=True)
        return BlobWriter(self, self._incoming / uuid4().hex)

    @contextmanager
    def shared_lock(self) -> Generator[None]:
        """Held from before blobs get their names until the rows that refer to them are committed: none is removed
        meanwhile.

        Any number hold it at once; waits while somebody is `alone`. Raises OSError.
        """
        with self._locked() as descriptor:
            fcntl.flock(descriptor, fcntl.LOCK_SH)
            yield

    @contextmanager
    def exclusive_lock(self) -> Generator[bool]:
        """Held while blobs are removed; False, and nothing is held, where somebody is `sharing`. Raises OSError."""
        with self._locked() as descriptor:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
            else:
                yield True

    def remove(self, sha256: str) -> None:
        """Removes a blob if it is there, for who is `alone`. Who reads it reads on to its end. Raises OSError."""
        self.path(sha256).unlink(missing_ok=True)

    def remove_abandoned(self) -> None:
        """Removes what an `add` that died a day ago left behind. Raises OSError."""
        if not self._incoming.exists():
            return
        before = time.time() - _ABANDONED_S
        for path in self._incoming.iterdir():
            with suppress(FileNotFoundError):  # an `add` that goes on has renamed it
                if path.stat().st_mtime < before:
                    path.unlink()

    def disk_space(self) -> DiskSpace:
        """Of its disk. Raises OSError."""
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        usage = shutil.disk_usage(self.root)
        return DiskSpace(total=usage.total, free=usage.free)

    def path(self, sha256: str) -> Path:
        """Where the blob lies, if it is there."""
        return self.root / sha256[:2] / sha256

    def open(self, sha256: str) -> BinaryIO:
        """Raises NotFound."""
        try:
            return self.path(sha256).open("rb")
        except FileNotFoundError:
            raise NotFound(f"blob {sha256} is not in the store") from None

    def copy_out(self, sha256: str, target: Path) -> bool:
        """Copies a blob to `target`, a new file. Raises OSError.

        False, and no file, where the blob is gone or its bytes are not what its name says.
        """
        try:
            with self.open(sha256) as source:
                whole = _copy_out(source, target) == sha256
        except NotFound:
            return False
        if not whole:
            target.unlink()
        return whole

    @contextmanager
    def _locked(self) -> Generator[int]:
        """A descriptor of the file that is locked; closing it gives the lock back, as the end of the process does."""
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(self.root / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            yield descriptor
        finally:
            os.close(descriptor)


def _copy_out(source: BinaryIO, target: Path) -> str:
    """The sha256 of what was copied."""
    digest = hashlib.sha256()
    with _new(target) as file:
        while chunk := source.read(_CHUNK):
            digest.update(chunk)
            _write(file, chunk)
        failpoint("blob.fsync")
        os.fsync(file.fileno())
    return digest.hexdigest()


def _new(path: Path) -> BinaryIO:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    return os.fdopen(descriptor, "wb", buffering=0)


def _write(file: BinaryIO, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[file.write(left) :]

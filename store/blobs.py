"""Blobs: immutable files named by their sha256, in a local or shared directory."""

from collections.abc import Callable, Generator
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
    """Writes a new blob in any number of calls. The blob has no name in the store before `publish`.

    Call `discard` in the end; it does nothing after `publish`.
    """

    def __init__(self, blobs: "Blobs", path: Path) -> None:
        self.size = 0
        """Bytes copied so far."""
        self._blobs = blobs
        self._path = path
        self._digest = hashlib.sha256()
        self._file = _create_private(path)

    def copy_from(self, source: BinaryIO, limit: int) -> int:
        """Copies at most `limit` bytes of `source` and returns their number; 0 at its end. Raises OSError."""
        copied = 0
        while copied < limit and (chunk := source.read(min(_CHUNK, limit - copied))):
            self._digest.update(chunk)
            _write_all(self._file, chunk)
            copied += len(chunk)
        self.size += copied
        return copied

    def sync(self) -> None:
        """Makes the copied bytes durable, so that `finish` takes less time. Raises OSError."""
        os.fdatasync(self._file.fileno())

    def finish(self) -> Blob:
        """Ends the blob and makes it durable. Raises OSError."""
        failpoint("blob.fsync")
        os.fsync(self._file.fileno())
        self._file.close()
        return Blob(self._digest.hexdigest(), self.size)

    def publish(self) -> None:
        """Gives the finished blob its name; durable when this returns. Raises OSError.

        It replaces an existing blob of that name, which may be damaged.
        """
        self._blobs.publish(self._path, self._digest.hexdigest())

    def discard(self) -> None:
        """Removes the blob unless it was published. Raises OSError."""
        self._file.close()
        self._path.unlink(missing_ok=True)


class Blobs:
    """A directory of blobs that any number of processes share."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._incoming = root / "incoming"

    def add(self, source: BinaryIO) -> Blob:
        """Copies `source` to its end and hashes it; the blob is durable when this returns. Raises OSError."""
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
        """Returns a writer of a new blob. Raises OSError."""
        self._incoming.mkdir(mode=0o700, parents=True, exist_ok=True)
        return BlobWriter(self, self._incoming / uuid4().hex)

    def publish(self, path: Path, sha256: str) -> None:
        """Gives a file of the blobs' file system, which was synced, the name of its sha256; durable when this returns.

        It replaces an existing blob of that name, which may be damaged. Raises OSError.
        """
        target = self.path(sha256)
        target.parent.mkdir(exist_ok=True)
        failpoint("blob.rename")
        path.rename(target)
        failpoint("blob.renamed")
        sync_folder(target.parent)
        sync_folder(self.root)

    def has(self, sha256: str, *, size: int) -> bool:
        """Returns whether there is a blob of that name and size. Its bytes are not read. Raises OSError."""
        try:
            return self.path(sha256).stat().st_size == size
        except FileNotFoundError:
            return False

    @contextmanager
    def shared_lock(self) -> Generator[None]:
        """Keeps blobs from being removed. Hold it from before blobs are published until their rows are committed.

        Any number of processes may hold it together. Waits while another holds `exclusive_lock`. Raises OSError.
        """
        with self._locked() as descriptor:
            fcntl.flock(descriptor, fcntl.LOCK_SH)
            yield

    @contextmanager
    def exclusive_lock(self) -> Generator[bool]:
        """Hold it to remove blobs. Yields False, without it, if another holds `shared_lock`. Raises OSError."""
        with self._locked() as descriptor:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
            else:
                yield True

    def remove(self, sha256: str) -> None:
        """Removes a blob if it exists; needs `exclusive_lock`. Open readers can still read it. Raises OSError."""
        self.path(sha256).unlink(missing_ok=True)

    def remove_abandoned(self) -> None:
        """Removes unpublished files that are more than a day old. Raises OSError."""
        if not self._incoming.exists():
            return
        before = time.time() - _ABANDONED_S
        for path in self._incoming.iterdir():
            with suppress(FileNotFoundError):  # published meanwhile
                if path.stat().st_mtime < before:
                    path.unlink()

    def disk_space(self) -> DiskSpace:
        """Returns the total and free bytes of the blobs' disk. Raises OSError."""
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        usage = shutil.disk_usage(self.root)
        return DiskSpace(total=usage.total, free=usage.free)

    def path(self, sha256: str) -> Path:
        """Returns the path of a blob, which may not exist."""
        return self.root / sha256[:2] / sha256

    def open(self, sha256: str) -> BinaryIO:
        """Opens a blob for reading. Raises NotFound."""
        try:
            return self.path(sha256).open("rb")
        except FileNotFoundError:
            raise NotFound(f"blob {sha256} is not in the store") from None

    def copy_out(self, sha256: str, target: Path, *, check: Callable[[], object] = lambda: None) -> bool:
        """Copies a blob to `target`, a new file. Raises OSError.

        Returns False and leaves no file if the blob is missing or damaged. `check` is called before each part, and may
        raise to end the copy.
        """
        try:
            with self.open(sha256) as source:
                whole = _copy_out(source, target, check) == sha256
        except NotFound:
            return False
        if not whole:
            target.unlink()
        return whole

    @property
    def uploads(self) -> Path:
        """The folder of unfinished uploads, which become blobs by a rename."""
        return self.root / "uploads"

    @contextmanager
    def _locked(self) -> Generator[int]:
        """Yields a descriptor of the lock file. Closing it releases the lock, and so does the end of the process."""
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(self.root / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            yield descriptor
        finally:
            os.close(descriptor)


def _copy_out(source: BinaryIO, target: Path, check: Callable[[], object]) -> str:
    """Copies `source` and returns its sha256."""
    digest = hashlib.sha256()
    with _create_private(target) as file:
        while chunk := source.read(_CHUNK):
            check()
            digest.update(chunk)
            _write_all(file, chunk)
        failpoint("blob.fsync")
        os.fsync(file.fileno())
    return digest.hexdigest()


def _create_private(path: Path) -> BinaryIO:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    return os.fdopen(descriptor, "wb", buffering=0)


def _write_all(file: BinaryIO, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[file.write(left) :]

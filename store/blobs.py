"""Blobs: immutable files named by their sha256, in a local or shared directory."""

from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
import fcntl
import hashlib
import os
from pathlib import Path
import time
from typing import BinaryIO
from uuid import uuid4

from torchyard.errors import NotFound
from torchyard.failpoints import failpoint
from torchyard.rundir import sync_folder

_CHUNK = 1 << 20
_ABANDONED_S = 24 * 3600


@dataclass(frozen=True)
class Blob:
    sha256: str
    size: int


class Blobs:
    """A directory of blobs that any number of processes share."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._incoming = root / "incoming"

    def add(self, source: BinaryIO) -> Blob:
        """Copies `source` to its end, hashing what is copied; durable when this returns. Raises OSError."""
        self._incoming.mkdir(mode=0o700, parents=True, exist_ok=True)
        temporary = self._incoming / uuid4().hex
        try:
            blob = _copy(source, temporary)
            target = self.path(blob.sha256)
            target.parent.mkdir(exist_ok=True)
            failpoint("blob.rename")
            temporary.rename(target)
            failpoint("blob.renamed")
            sync_folder(target.parent)
            sync_folder(self.root)
            return blob
        finally:
            temporary.unlink(missing_ok=True)

    @contextmanager
    def sharing(self) -> Generator[None]:
        """Held from before blobs are added until the rows that refer to them are committed: none is removed meanwhile.

        Any number hold it at once; waits while somebody is `alone`. Raises OSError.
        """
        with self._locked() as descriptor:
            fcntl.flock(descriptor, fcntl.LOCK_SH)
            yield

    @contextmanager
    def alone(self) -> Generator[bool]:
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
                whole = _copy(source, target).sha256 == sha256
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


def _copy(source: BinaryIO, target: Path) -> Blob:
    digest, size = hashlib.sha256(), 0
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb", buffering=0) as file:
        while chunk := source.read(_CHUNK):
            digest.update(chunk)
            size += len(chunk)
            view = memoryview(chunk)
            while view:
                view = view[file.write(view) :]
        failpoint("blob.fsync")
        os.fsync(file.fileno())
    return Blob(digest.hexdigest(), size)

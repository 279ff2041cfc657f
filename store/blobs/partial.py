"""The file of one unfinished upload. Any number of requests may have it open: each call takes its lock."""

from collections.abc import Generator
from contextlib import contextmanager
import fcntl
import os
from pathlib import Path
import time

from torchyard.contract.errors import Conflict, TooManyRequests, Unavailable
from torchyard.host.disk import FULL, PASSING

_PATIENCE_S = 1.0
_PAUSE_S = 0.01
_FULL_DISK_PAUSE_S = 10


class PartialFile:
    """Appends to the file from byte `at`, as long as no other request does the same. Close it in the end."""

    def __init__(self, path: Path, *, at: int) -> None:
        """Raises FileNotFoundError and other OSErrors."""
        self.path = path
        self.at = at
        """The bytes before the next one that this request appends."""
        self._descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC)

    def close(self) -> None:
        os.close(self._descriptor)

    def append(self, data: bytes) -> None:
        """Appends bytes. Raises OSError, and what `locked` raises."""
        left = memoryview(data)
        with self.locked():
            while left:
                written = os.write(self._descriptor, left)
                self.at += written
                left = left[written:]

    def cut(self, size: int) -> None:
        """Removes all after the first `size` bytes, or the file if there are none. Needs `locked`. Raises OSError."""
        os.ftruncate(self._descriptor, size)
        self.at = size
        if not size:
            self.path.unlink()

    def begin_sync(self, first: int) -> None:
        """Has what is behind the first bytes go to the disk soon, so that `sync` takes less time. Raises OSError."""
        os.posix_fadvise(self._descriptor, first, self.at - first, os.POSIX_FADV_DONTNEED)

    def sync(self) -> None:
        """Makes the bytes durable. Raises OSError."""
        os.fdatasync(self._descriptor)

    @contextmanager
    def locked(self) -> Generator[None]:
        """Keeps other requests from changing the file.

        Raises Conflict, with the bytes that are there now, if another request has appended or removed some since this
        one did, and TooManyRequests if another one checks the whole file.
        """
        lock(self._descriptor)
        try:
            self._require_no_change()
            yield
        finally:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def _require_no_change(self) -> None:
        mine = os.fstat(self._descriptor)
        try:
            there = self.path.stat(follow_symlinks=False)
            size = mine.st_size if os.path.samestat(mine, there) else None
        except FileNotFoundError:
            size = None
        if size != self.at:
            raise out_of_place(size or 0)


def lock(descriptor: int) -> None:
    """Locks the file. Raises TooManyRequests if another request holds it for long."""
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise TooManyRequests("another request checks this upload: wait for it") from None
            time.sleep(_PAUSE_S)
        else:
            return


@contextmanager
def disk_errors() -> Generator[None]:
    """Raises Unavailable for an OSError that may pass. What has arrived is kept."""
    try:
        yield
    except OSError as error:
        if error.errno not in PASSING:
            raise
        pause = _FULL_DISK_PAUSE_S if error.errno in FULL else None
        what = "is full" if error.errno in FULL else f"does not answer ({error.strerror})"
        raise Unavailable(f"the disk of the service {what}: the received part is kept", retry_after=pause) from error


def out_of_place(received: int) -> Conflict:
    """Returns the error for bytes that do not follow those that have arrived."""
    error = Conflict(f"{received} bytes of this file have arrived: continue with offset={received}")
    error.received = received
    return error

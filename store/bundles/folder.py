"""Unfinished uploads of bundles: one file for each user and digest. What one user sends is never visible to another."""

from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
import fcntl
import hashlib
import os
from pathlib import Path
import re
import time

from store.blobs.partial import PartialFile, lock, out_of_place
from torchyard.contract.errors import Conflict

MAX_UPLOADS = 10
"""Unfinished uploads of one user."""
_EXPIRES_S = 24 * 3600
_NAME = re.compile(r"([0-9a-f]{64})\.([0-9]{1,18})\.([0-9]{1,18})")
_LOCK = "lock"


@dataclass(frozen=True)
class Partial:
    """What has arrived of a bundle. `size` is that of the whole tar; times are in microseconds."""

    path: Path
    sha256: str
    size: int
    started_at: int
    received: int


class Uploads:
    """The unfinished uploads of all users, in one folder that any number of processes share."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def list_uploads(self, owner: str) -> list[Partial]:
        """Returns the unfinished uploads of the user, newest first. Raises OSError."""
        uploads = [partial for partial in map(_read_partial, _list_files(self._folder(owner))) if partial is not None]
        return sorted(uploads, key=lambda partial: (partial.started_at, partial.sha256), reverse=True)

    def find(self, owner: str, sha256: str) -> Partial | None:
        """Returns the user's unfinished upload of that bundle, or None. Raises OSError."""
        return next((partial for partial in self.list_uploads(owner) if partial.sha256 == sha256), None)

    def open(self, owner: str, sha256: str, *, size: int, offset: int, admit: Callable[[int], None]) -> PartialFile:
        """Opens the user's upload of the bundle to append from `offset`; a new one where there is none of that size.

        Needs `locked`. `admit` is called with the bytes that the user's other uploads will have; what it raises is
        passed on. Raises Conflict if other bytes have arrived than `offset`, or there are too many uploads,
        TooManyRequests, and OSError.
        """
        uploads = self.list_uploads(owner)
        mine = next((partial for partial in uploads if partial.sha256 == sha256), None)
        received = mine.received if mine is not None and mine.size == size else 0
        if offset != received:
            raise out_of_place(received)
        others = [partial for partial in uploads if partial is not mine]
        admit(sum(partial.size for partial in others))
        if mine is not None and mine.size == size:
            return PartialFile(mine.path, at=received)
        if len(others) >= MAX_UPLOADS:
            raise Conflict(f"{len(others)} uploads are unfinished: finish or delete some of them first")
        if mine is not None:
            _remove(mine.path)
        path = self._folder(owner) / f"{sha256}.{size}.{time.time_ns() // 1000}"
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        return PartialFile(path, at=0)

    def remove(self, owner: str, sha256: str) -> bool:
        """Removes the user's unfinished upload. Returns whether there was one. Raises TooManyRequests and OSError."""
        if self.find(owner, sha256) is None:
            return False
        with self.locked(owner):
            mine = self.find(owner, sha256)
            if mine is not None:
                _remove(mine.path)
        return mine is not None

    def remove_abandoned(self) -> int:
        """Removes uploads to which nothing was added for a day, and returns their number. Raises OSError."""
        before, removed = time.time() - _EXPIRES_S, 0
        for folder in _list_files(self._root):
            for path in _list_files(folder):
                with suppress(FileNotFoundError):
                    if path.name != _LOCK and path.stat().st_mtime < before:
                        removed += _remove_if_older(path, before)
        return removed

    @contextmanager
    def locked(self, owner: str) -> Generator[None]:
        """Keeps others from beginning, publishing and removing the user's uploads. Raises TooManyRequests, OSError."""
        folder = self._folder(owner)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            lock(descriptor)
            yield
        finally:
            os.close(descriptor)

    def _folder(self, owner: str) -> Path:
        return self._root / hashlib.sha256(owner.encode()).hexdigest()[:32]


def _list_files(folder: Path) -> list[Path]:
    try:
        return [*folder.iterdir()]
    except FileNotFoundError:
        return []


def _read_partial(path: Path) -> Partial | None:
    match = _NAME.fullmatch(path.name)
    try:
        received = path.stat(follow_symlinks=False).st_size
    except FileNotFoundError:
        return None
    return match and Partial(path, match[1], int(match[2]), int(match[3]), received)


def _remove(path: Path) -> None:
    """Removes an upload while no request writes it."""
    with suppress(FileNotFoundError):
        descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            lock(descriptor)
            path.unlink()
        finally:
            os.close(descriptor)


def _remove_if_older(path: Path, before: float) -> bool:
    descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(descriptor).st_mtime >= before:
            return False
        path.unlink()
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True

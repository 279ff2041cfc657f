"""A bounded cache of downloads by their digests, for one process. What is read is checked each time."""

from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
import hashlib
import os
from pathlib import Path
import threading
import time
from typing import BinaryIO

from store.blobs.writer import CHUNK, copy_file
from torchyard.contract.errors import NotFound

Check = Callable[[], object]
Fetch = Callable[[str, Path, Check], None]
"""Appends to a file what it lacks of a blob. Raises NotFound and OSError."""

_POLL_S = 0.1
_EXPIRES_S = 24 * 3600
_PART = ".part"


class BlobCache:
    """Threads may share it. Two that want the same blob fetch it once. Calls may raise OSError."""

    def __init__(self, root: Path, fetch: Fetch, *, most_bytes: int) -> None:
        self._root = root
        self._fetch = fetch
        self._most_bytes = most_bytes
        self._lock = threading.Lock()
        self._turns: dict[str, threading.Lock] = {}
        self._waiting = Counter[str]()
        root.mkdir(mode=0o700, parents=True, exist_ok=True)

    def open(self, sha256: str, *, check: Check = lambda: None) -> BinaryIO:
        """Opens a blob whose bytes are those of its digest. Raises NotFound if the service has none."""
        for _ in range(2):
            file = self._open(sha256, check)
            if _sha256(file) == sha256:
                file.seek(0)
                return file
            file.close()
            self._remove(sha256)
        raise NotFound(f"the stored blob {sha256} is damaged")

    def copy_out(self, sha256: str, target: Path, *, check: Check = lambda: None) -> bool:
        """Does what `BlobStore.copy_out` does."""
        for _ in range(2):
            try:
                with self._open(sha256, check) as source:
                    whole = copy_file(source, target, check) == sha256
            except NotFound:
                return False
            if whole:
                return True
            target.unlink()
            self._remove(sha256)
        return False

    def _open(self, sha256: str, check: Check) -> BinaryIO:
        """Opens what is here, or fetches it. An open file can be read after it was removed."""
        path = self._root / sha256
        with self._turn(sha256, check):
            while True:
                with suppress(FileNotFoundError):
                    file = path.open("rb")
                    os.utime(path)  # those that were not used for longest are removed first
                    return file
                part = path.with_name(f"{sha256}{_PART}")
                self._fetch(sha256, part, check)
                part.rename(path)
                self._trim(sha256)

    def _remove(self, sha256: str) -> None:
        (self._root / sha256).unlink(missing_ok=True)

    def _trim(self, newest: str) -> None:
        """Removes what was not used for longest, until the rest is small enough; and what nobody has gone on with."""
        with self._lock:
            found = sorted((path.stat().st_mtime, path.stat().st_size, path) for path in self._root.iterdir())
            size = sum(each for _, each, _ in found)
            for used_at, each, path in found:
                is_part = path.suffix == _PART
                is_left = is_part and used_at < time.time() - _EXPIRES_S
                if is_left or (size > self._most_bytes and not is_part and path.name != newest):
                    path.unlink()
                    size -= each

    @contextmanager
    def _turn(self, sha256: str, check: Check) -> Generator[None]:
        """Waits for others that fetch the same blob, and calls `check` meanwhile."""
        with self._lock:
            turn = self._turns.setdefault(sha256, threading.Lock())
            self._waiting[sha256] += 1
        try:
            while not turn.acquire(timeout=_POLL_S):
                check()
            try:
                yield
            finally:
                turn.release()
        finally:
            with self._lock:
                self._waiting[sha256] -= 1
                if not self._waiting[sha256]:
                    del self._waiting[sha256], self._turns[sha256]


def _sha256(file: BinaryIO) -> str:
    digest = hashlib.sha256()
    while chunk := file.read(CHUNK):
        digest.update(chunk)
    return digest.hexdigest()

"""Writes a downloaded file. An interrupted download keeps its bytes, and the next one continues from them."""

from collections.abc import Callable
import errno
import fcntl
import hashlib
from http import HTTPStatus
import os
from pathlib import Path
import re
import shutil
from typing import Protocol, Self

import httpx2

from torchyard.contract.errors import Conflict, NotFound, ServerError
from torchyard.contract.files.views import CheckpointFile, CheckpointView
from torchyard.contract.models.views import ModelVersionView

OnProgress = Callable[[int, int], None]
"""Called with the bytes written so far and their total; first with the bytes that an earlier download left."""

_CHUNK = 1 << 20
_STARTS_AT = re.compile(r"bytes ([0-9]{1,18})-")


def file_to_download(listed: CheckpointView | ModelVersionView, path: str | None, *, of: str) -> CheckpointFile:
    """Returns the file of that path; without a path, the file that `/download` sends. Raises NotFound.

    `of`: what has the files, for messages.
    """
    if path is None:
        return CheckpointFile(path=of, size=listed.size, sha256=listed.sha256)
    found = next((file for file in listed.files if file.path == path), None)
    if found is None:
        names = ", ".join(file.path for file in listed.files)
        raise NotFound(f"{of} has no file {path!r}; it has {names}")
    return found


def is_next_part(response: httpx2.Response, *, start: int) -> bool:
    """Returns whether the response is the part of the file that begins at `start`, and not the whole file.

    Raises ServerError for another part.
    """
    if response.status_code != HTTPStatus.PARTIAL_CONTENT:
        return False
    match = _STARTS_AT.match(response.headers.get("Content-Range", ""))
    if match is None or int(match[1]) != start:
        raise ServerError(f"{response.url} did not send the part of the file that begins at byte {start}")
    return True


class Filled(Protocol):
    """What arrives over one connection, or over many."""

    @property
    def size(self) -> int:
        """Bytes that have arrived."""
        ...

    @property
    def complete(self) -> bool: ...

    @property
    def headers(self) -> dict[str, str]:
        """The request headers for the missing bytes."""
        ...

    def accept(self, response: httpx2.Response) -> None:
        """Prepares for the response's body."""
        ...

    def write(self, chunk: bytes) -> None:
        """Takes received bytes."""
        ...


class PartFile:
    """The file `NAME.<sha256>.part`, which is renamed to `target` once it is complete.

    On entry it is locked, and the bytes that an earlier download left in it are hashed. Raises Conflict if another
    process has locked it, and OSError, whose message says how many bytes are kept.
    """

    def __init__(self, target: Path, expected: CheckpointFile, on_progress: OnProgress | None) -> None:
        self.path = target.with_name(f"{target.name}.{expected.sha256[:12]}.part")
        self.size = 0
        self._target = target
        self._expected = expected
        self._digest = hashlib.sha256()
        self._on_progress = on_progress

    def __enter__(self) -> Self:
        self._file = open(self.path, "a+b", buffering=0, opener=_follow_no_link)
        self._lock()
        try:
            self._hash_existing_bytes()
            self._require_free_space()
            self._report_progress()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if not self.size:
            self.path.unlink(missing_ok=True)
        self._file.close()

    @property
    def complete(self) -> bool:
        return self.size >= self._expected.size

    @property
    def headers(self) -> dict[str, str]:
        """The request headers for the missing bytes, or for all if the server's file has changed (RFC 9110, 13.1.5)."""
        plain = {"Accept-Encoding": "identity"}
        if not self.size:
            return plain
        return {**plain, "Range": f"bytes={self.size}-", "If-Range": f'"{self._expected.sha256}"'}

    def accept(self, response: httpx2.Response) -> None:
        """Prepares for the response's body: it continues the file, or replaces it. Raises ServerError."""
        if not is_next_part(response, start=self.size):
            self._truncate()

    def write(self, chunk: bytes) -> None:
        """Appends received bytes. Raises OSError."""
        left = memoryview(chunk)
        while left:
            try:
                written = self._file.write(left)
            except OSError as error:
                raise self._failed(error) from error
            self._count(left[:written])
            left = left[written:]
        self._report_progress()

    def finish(self) -> None:
        """Renames the file to its target. Raises ServerError and removes it if its bytes are not the listed ones."""
        found = (self.size, self._digest.hexdigest())
        if found != (self._expected.size, self._expected.sha256):
            self.path.unlink(missing_ok=True)
            raise ServerError(
                f"{self._expected.path} arrived as {found[0]} bytes with sha256 {found[1]}, but is listed as"
                f" {self._expected.size} bytes with sha256 {self._expected.sha256}: the received bytes were removed"
            )
        self.path.replace(self._target)

    def _lock(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._file.close()
            raise Conflict(f"another download is writing {self.path}: wait for it, or choose another file") from None

    def _hash_existing_bytes(self) -> None:
        self._file.seek(0)
        while chunk := self._file.read(_CHUNK):
            self._count(chunk)
        if self.size > self._expected.size:
            self._truncate()

    def _require_free_space(self) -> None:
        missing, free = self._expected.size - self.size, shutil.disk_usage(self.path.parent).free
        if free < missing:
            raise self._failed(OSError(errno.ENOSPC, f"{missing} bytes are missing, but the disk has only {free} free"))

    def _truncate(self) -> None:
        self._file.truncate(0)
        self.size, self._digest = 0, hashlib.sha256()

    def _count(self, data: bytes | memoryview) -> None:
        self._digest.update(data)
        self.size += len(data)

    def _report_progress(self) -> None:
        if self._on_progress is not None:
            self._on_progress(self.size, self._expected.size)

    def _failed(self, error: OSError) -> OSError:
        kept = f"{self.size} of {self._expected.size} bytes are kept, and the next download continues from them"
        return OSError(error.errno, f"{error.strerror}; {kept}", str(self.path))


def _follow_no_link(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)

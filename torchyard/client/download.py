"""A file on its way: what has arrived of it is kept, so that a broken download goes on where it was."""

from collections.abc import Callable
import errno
import fcntl
import hashlib
from http import HTTPStatus
from pathlib import Path
import re
import shutil
from typing import Self

import httpx2

from torchyard.contract.errors import Conflict, NotFound, ServerError
from torchyard.contract.views import CheckpointFile, CheckpointView

OnProgress = Callable[[int, int], None]
"""Called with the bytes so far and their total: at first with those that an earlier download left."""

_CHUNK = 1 << 20
_STARTS_AT = re.compile(r"bytes ([0-9]{1,18})-")


def file_to_download(checkpoint: CheckpointView, path: str | None) -> CheckpointFile:
    """The checkpoint's file of that path; without one, what it sends by itself. Raises NotFound."""
    if path is None:
        return CheckpointFile(path=f"checkpoint {checkpoint.id}", size=checkpoint.size, sha256=checkpoint.sha256)
    found = next((file for file in checkpoint.files if file.path == path), None)
    if found is None:
        names = ", ".join(file.path for file in checkpoint.files)
        raise NotFound(f"checkpoint {checkpoint.id} has no file {path!r}; it has {names}")
    return found


class PartFile:
    """`NAME.<sha256>.part` beside the file that it becomes: its name says whose bytes it holds.

    On entry it is locked, and what an earlier download left in it is hashed. Raises Conflict where another process
    holds it, and OSError, which says how much of the file is kept.
    """

    def __init__(self, target: Path, wanted: CheckpointFile, on_progress: OnProgress | None) -> None:
        self.path = target.with_name(f"{target.name}.{wanted.sha256[:12]}.part")
        self.size = 0
        self._target = target
        self._wanted = wanted
        self._digest = hashlib.sha256()
        self._on_progress = on_progress

    def __enter__(self) -> Self:
        self._file = self.path.open("a+b", buffering=0)
        self._lock()
        try:
            self._read_what_is_there()
            self._check_room()
            self._tell()
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
        return self.size >= self._wanted.size

    @property
    def headers(self) -> dict[str, str]:
        """Asks for what is missing, or for all where the server's file is another one by now (RFC 9110, 13.1.5)."""
        plain = {"Accept-Encoding": "identity"}
        if not self.size:
            return plain
        return {**plain, "Range": f"bytes={self.size}-", "If-Range": f'"{self._wanted.sha256}"'}

    def accept(self, response: httpx2.Response) -> None:
        """Makes ready for an answer's body: it goes on behind what is there, or begins anew."""
        if response.status_code != HTTPStatus.PARTIAL_CONTENT:
            return self._begin_anew()
        match = _STARTS_AT.match(response.headers.get("Content-Range", ""))
        if match is None or int(match[1]) != self.size:
            raise ServerError(f"{response.url} sent another part of the file than the one from byte {self.size} on")
        return None

    def write(self, chunk: bytes) -> None:
        """Appends what arrived. Raises OSError."""
        left = memoryview(chunk)
        while left:
            try:
                written = self._file.write(left)
            except OSError as error:
                raise self._failed(error) from error
            self._count(left[:written])
            left = left[written:]
        self._tell()

    def finish(self) -> None:
        """Gives the file its name. Raises ServerError, and removes it, where its bytes are not those listed."""
        found = (self.size, self._digest.hexdigest())
        if found != (self._wanted.size, self._wanted.sha256):
            self.path.unlink(missing_ok=True)
            raise ServerError(
                f"{self._wanted.path} arrived as {found[0]} bytes with sha256 {found[1]}, but is listed as"
                f" {self._wanted.size} bytes with sha256 {self._wanted.sha256}: what arrived was removed"
            )
        self.path.replace(self._target)

    def _lock(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._file.close()
            raise Conflict(f"another download writes {self.path}: wait for it, or choose another file") from None

    def _read_what_is_there(self) -> None:
        self._file.seek(0)
        while chunk := self._file.read(_CHUNK):
            self._count(chunk)
        if self.size > self._wanted.size:
            self._begin_anew()

    def _check_room(self) -> None:
        missing, free = self._wanted.size - self.size, shutil.disk_usage(self.path.parent).free
        if free < missing:
            raise self._failed(OSError(errno.ENOSPC, f"{missing} bytes are missing and the disk has {free} left"))

    def _begin_anew(self) -> None:
        self._file.truncate(0)
        self.size, self._digest = 0, hashlib.sha256()

    def _count(self, data: bytes | memoryview) -> None:
        self._digest.update(data)
        self.size += len(data)

    def _tell(self) -> None:
        if self._on_progress is not None:
            self._on_progress(self.size, self._wanted.size)

    def _failed(self, error: OSError) -> OSError:
        kept = f"{self.size} of {self._wanted.size} bytes are kept, and the next download goes on behind them"
        return OSError(error.errno, f"{error.strerror}; {kept}", str(self.path))

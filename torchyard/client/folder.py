"""Writes a downloaded folder: the files of a checkpoint, which arrive as one tar.

The list of files says what each byte of the tar is. So an interrupted download goes on from what is there, each file is
verified by its own sha256, and no name in the tar becomes a path.
"""

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
import errno
import fcntl
import hashlib
import os
from pathlib import Path
import shutil
from typing import Self

import httpx2

from torchyard.client.download import OnProgress, is_next_part
from torchyard.contract.errors import Conflict, ServerError
from torchyard.contract.files import archives
from torchyard.contract.files.paths import check_path, check_paths, digest_of
from torchyard.contract.files.views import CheckpointFile

_CHUNK = 1 << 20
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

Put = Callable[[memoryview], None]


@dataclass(frozen=True)
class _Part:
    """Bytes of the tar: those of a file, or its own."""

    start: int
    end: int
    file: CheckpointFile | None = None
    own: bytes = b""


class PartFolder:
    """The folder `NAME.<sha256>.part`, which is renamed to `target` once all of its files are whole.

    On entry it is locked, and the bytes that an earlier download left in it are hashed. No link is followed in it.
    Raises ServerError for files that no checkpoint may have, Conflict if `target` is there or another process has
    locked the folder, and OSError.
    """

    def __init__(
        self, target: Path, files: Sequence[CheckpointFile], *, sha256: str, on_progress: OnProgress | None
    ) -> None:
        _check(files, sha256)
        if os.path.lexists(target):
            raise Conflict(f"{target} exists: remove it, or choose another folder")
        self.path = target.with_name(f"{target.name}.{sha256[:12]}.part")
        self.size = 0
        """Bytes of the tar that have arrived."""
        self._target = target
        self._sha256 = sha256
        self._parts = _parts(files)
        self._total = self._parts[-1].end
        self._on_progress = on_progress
        self._taking = self._take()

    def __enter__(self) -> Self:
        self.path.mkdir(exist_ok=True)
        self._folder = os.open(self.path, _FOLDER)
        try:
            self._lock()
            self.size = self._found()
            self._require_free_space()
            self._begin()
            self._report_progress()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._taking.close()
        os.close(self._folder)
        if not self.size:
            shutil.rmtree(self.path, ignore_errors=True)

    @property
    def complete(self) -> bool:
        return self.size >= self._total

    @property
    def headers(self) -> dict[str, str]:
        """The request headers for the missing bytes, or for all, as those of a `PartFile`."""
        plain = {"Accept-Encoding": "identity"}
        return {**plain, "Range": f"bytes={self.size}-", "If-Range": f'"{self._sha256}"'} if self.size else plain

    def accept(self, response: httpx2.Response) -> None:
        """Prepares for the response's body: it continues the files, or replaces them. Raises ServerError."""
        if not is_next_part(response, start=self.size):
            self.size = 0
            self._begin()

    def write(self, chunk: bytes) -> None:
        """Takes the next bytes of the tar. Raises ServerError if they are not those of the list, and OSError."""
        with suppress(StopIteration):  # these were the last
            self._taking.send(memoryview(chunk))
        self._report_progress()

    def finish(self) -> None:
        """Gives the folder its name. Raises ServerError if not all has arrived, and OSError."""
        if not self.complete:
            raise ServerError(f"only {self.size} of {self._total} bytes have arrived: they are kept in {self.path}")
        self.path.rename(self._target)

    def _begin(self) -> None:
        """Makes ready for the bytes from `size` on."""
        self._taking.close()
        self._taking = self._take()
        next(self._taking)

    def _take(self) -> Generator[None, memoryview]:
        """Takes what is sent to it, from the byte `size` of the tar on."""
        left = memoryview(b"")
        for part in self._parts:
            if part.start < self.size >= part.end:
                continue
            with self._compared(part) if part.file is None else self._opened(part.file, self.size - part.start) as put:
                while self.size < part.end:
                    left = left or (yield)
                    piece = left[: part.end - self.size]
                    put(piece)
                    self.size += len(piece)
                    left = left[len(piece) :]
        while not left:
            left = yield
        raise ServerError(f"the server sends more than the {self._total} bytes that its list of files says")

    @contextmanager
    def _compared(self, part: _Part) -> Generator[Put]:
        def put(piece: memoryview) -> None:
            at = self.size - part.start
            if bytes(piece) != part.own[at : at + len(piece)]:
                raise ServerError(
                    f"byte {self.size} of the tar and those behind it are not what the list of its files says:"
                    " is the server of another version?"
                )

        yield put

    @contextmanager
    def _opened(self, file: CheckpointFile, have: int) -> Generator[Put]:
        """Opens a file of which so many bytes are there. Checks in the end that it is whole."""
        digest = hashlib.sha256()
        with self._parent(file.path) as folder:
            descriptor = os.open(file.path.rpartition("/")[2], _FILE, 0o666, dir_fd=folder)
        with os.fdopen(descriptor, "r+b", buffering=0) as opened:
            opened.truncate(have)
            while chunk := opened.read(_CHUNK):
                digest.update(chunk)

            def put(piece: memoryview) -> None:
                left = piece
                while left:
                    try:
                        left = left[opened.write(left) :]
                    except OSError as error:
                        raise self._failed(error) from error
                digest.update(piece)

            yield put
            if digest.hexdigest() != file.sha256:
                opened.truncate(0)
                raise ServerError(
                    f"{file.path} arrived with the sha256 {digest.hexdigest()}, but is listed with {file.sha256}:"
                    " the received bytes were removed"
                )

    def _found(self) -> int:
        """Returns how many bytes of the tar an earlier download has written: up to a file that is not whole."""
        found = 0
        for part in self._parts:
            if part.file is None:
                continue
            size, sha256 = self._read(part.file)
            if size < part.file.size:
                return part.start + size if size > 0 else found
            if sha256 != part.file.sha256:
                return found
            found = part.end
        return found

    def _read(self, file: CheckpointFile) -> tuple[int, str]:
        """Returns the size of a file that is there, and, where none of its bytes is missing, its sha256."""
        with suppress(FileNotFoundError), self._parent(file.path) as folder:
            descriptor = os.open(file.path.rpartition("/")[2], _FILE & ~os.O_CREAT, dir_fd=folder)
            with os.fdopen(descriptor, "rb", buffering=0) as opened:
                size = os.fstat(descriptor).st_size
                return size, "" if size != file.size else hashlib.file_digest(opened, "sha256").hexdigest()
        return -1, ""

    @contextmanager
    def _parent(self, path: str) -> Generator[int]:
        """Yields the folder of a file, which is made. Raises OSError if a name on the way is a link."""
        folder = os.dup(self._folder)
        try:
            for name in path.split("/")[:-1]:
                with suppress(FileExistsError):
                    os.mkdir(name, dir_fd=folder)
                inner = os.open(name, _FOLDER, dir_fd=folder)
                os.close(folder)
                folder = inner
            yield folder
        finally:
            os.close(folder)

    def _lock(self) -> None:
        try:
            fcntl.flock(self._folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Conflict(f"another download is writing {self.path}: wait for it, or choose another folder") from None

    def _require_free_space(self) -> None:
        missing, free = self._total - self.size, shutil.disk_usage(self.path).free
        if free < missing:
            raise self._failed(OSError(errno.ENOSPC, f"{missing} bytes are missing, but the disk has only {free} free"))

    def _report_progress(self) -> None:
        if self._on_progress is not None:
            self._on_progress(self.size, self._total)

    def _failed(self, error: OSError) -> OSError:
        kept = f"{self.size} of {self._total} bytes are kept, and the next download continues from them"
        return OSError(error.errno, f"{error.strerror}; {kept}", str(self.path))


def _check(files: Sequence[CheckpointFile], sha256: str) -> None:
    try:
        check_paths([check_path(file.path) for file in files])
    except ValueError as error:
        raise ServerError(f"the server's list of files cannot be used: it {error}; nothing is written") from None
    if digest_of((file.path, file.sha256) for file in files) != sha256:
        raise ServerError(
            "the sha256 that the server tells is not that of its list of files: is it of another version?"
        )


def _parts(files: Sequence[CheckpointFile]) -> list[_Part]:
    found, at, before = list[_Part](), 0, b""
    for file in sorted(files, key=lambda file: file.path.encode()):
        own = before + archives.header(file.path, file.size)
        found += [_Part(at, at + len(own), own=own), _Part(at + len(own), at + len(own) + file.size, file)]
        at, before = found[-1].end, archives.padding(file.size)
    own = before + archives.END
    return [*found, _Part(at, at + len(own), own=own)]

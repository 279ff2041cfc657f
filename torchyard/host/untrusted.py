"""Reads files that others wrote: nothing blocks, and only regular files are read. In a run directory, where a training
process wrote them, no link is followed, and a file has one name.
"""

from collections.abc import Generator
from contextlib import contextmanager, suppress
import errno
import os
from pathlib import Path
import stat
from typing import BinaryIO, TypeVar

from torchyard.contract.errors import DataError
from torchyard.contract.wire.codec import Record

T = TypeVar("T", bound=Record)

RECORD_LIMIT = 1 << 20
"""Bytes of a record, at most."""

_FLAGS = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK  # a pipe in place of a file would block the reader
_OWN = 3  # at most so many names at the end of a path belong to a run directory


def read_untrusted(path: Path, kind: type[T]) -> T | None:
    """Returns the record at `path` in a run directory. None if there is none, or it cannot be read."""
    raw = read_tail(path, RECORD_LIMIT)
    try:
        return kind.from_json(raw) if raw else None
    except ValueError:
        return None


def read_tail(path: Path, limit: int, *, start: int = 0) -> bytes:
    """Returns the last `limit` bytes of the file at `path` in a run directory, and none before the byte `start`.

    Returns b"" if there is no regular file.
    """
    try:
        root, names = _split(path)
        file = open_inside(root, *names)
    except (DataError, OSError):
        return b""
    if file is None:
        return b""
    with file:
        size = os.fstat(file.fileno()).st_size
        begin = max(start, size - limit)
        return os.pread(file.fileno(), min(limit, max(0, size - begin)), begin)


def read_given(path: Path, most: int) -> bytes:
    """Returns the content of a file that came with somebody's folder, or that a link there names.

    Raises OSError, also if it is no regular file or has more than `most` bytes.
    """
    _check_given(path.stat(), path, most)  # before it is opened, which a device may notice
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb", buffering=0) as file:
        _check_given(os.fstat(file.fileno()), path, most)
        content = b""
        while chunk := file.read(most + 1 - len(content)):
            content += chunk
    if len(content) > most:
        raise _too_large(path, most)
    return content


def append_untrusted(path: Path, data: bytes) -> None:
    """Appends `data` to the file at `path` in a run directory, and creates it.

    Does nothing if that fails, or `path` is not a regular file.
    """
    root, parts = _split(path)
    with suppress(OSError), folder_inside(root, *parts[:-1]) as folder:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | _FLAGS
        descriptor = os.open(parts[-1], flags, 0o600, dir_fd=folder)
        try:
            if _why_not(descriptor) is None:
                os.write(descriptor, data)
        finally:
            os.close(descriptor)


def open_inside(root: Path, *parts: str, names: int = 1) -> BinaryIO | None:
    """Opens the file `parts` below `root` for reading, unbuffered. Returns None if there is none.

    `names`: how many it may have. Raises DataError if `root` or a part is a link, or the file is not regular or has
    more names, and OSError.
    """
    name = "/".join(parts)
    try:
        with folder_inside(root, *parts[:-1]) as folder:
            descriptor = os.open(parts[-1], os.O_RDONLY | _FLAGS, dir_fd=folder)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno in {errno.ELOOP, errno.ENOTDIR}:
            raise DataError(f"{name} is a link or lies behind one") from None
        if error.errno in {
            errno.EACCES,
            errno.ENXIO,
        }:  # no permission to read, or a socket
            raise DataError(f"{name} cannot be opened") from None
        raise
    why_not = _why_not(descriptor, names=names)
    if why_not is not None:
        os.close(descriptor)
        raise DataError(f"{name} {why_not}")
    return os.fdopen(descriptor, "rb", buffering=0)


@contextmanager
def folder_inside(root: Path, *parts: str) -> Generator[int]:
    """Opens the folder `parts` below `root` as a descriptor. Raises OSError, also if `root` or a part is a link."""
    # Those on the way are not opened for reading: a rank in its sandbox may not read the folder above its own.
    on_the_way = os.O_PATH | os.O_DIRECTORY | _FLAGS
    names = (root, *parts)
    folder: int | None = None
    try:
        for name in names[:-1]:
            child = os.open(name, on_the_way, dir_fd=folder)
            if folder is not None:
                os.close(folder)
            folder = child
        last = os.open(names[-1], os.O_RDONLY | os.O_DIRECTORY | _FLAGS, dir_fd=folder)
    finally:
        if folder is not None:
            os.close(folder)
    try:
        yield last
    finally:
        os.close(last)


def _split(path: Path) -> tuple[Path, tuple[str, ...]]:
    """Splits a path into a folder that no job can replace, and the names below it."""
    whole = path.absolute()
    names = whole.parts[-_OWN:] if len(whole.parts) > _OWN else whole.parts[1:]
    return Path(*whole.parts[: -len(names)]).resolve(), names


def _why_not(descriptor: int, *, names: int = 1) -> str | None:
    """Returns why an open file must not be read, or None."""
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        return "is not a regular file"
    # A second name may lie outside the run directory. No name: the file was replaced a moment ago.
    return "has other names" if status.st_nlink > names else None


def _check_given(status: os.stat_result, path: Path, most: int) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, "it is a folder", str(path))
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    if status.st_size > most:
        raise _too_large(path, most)


def _too_large(path: Path, most: int) -> OSError:
    return OSError(errno.EFBIG, f"it has more than {most} bytes", str(path))

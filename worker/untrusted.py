"""Reading and removing what a training process wrote: regular files of a bounded size, and no link is followed."""

from collections.abc import Generator
from contextlib import contextmanager, suppress
import errno
import os
from pathlib import Path
import shutil
import stat
from typing import BinaryIO, TypeVar

from pydantic import ValidationError

from torchyard.errors import DataError
from torchyard.rundir import Record

T = TypeVar("T", bound=Record)

RECORD_LIMIT = 1 << 20
_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC


def read_tail(path: Path, limit: int) -> bytes:
    """The last `limit` bytes of the regular file at `path`; nothing where no regular file lies there."""
    try:
        descriptor = os.open(path, _FLAGS | os.O_NONBLOCK)
    except OSError:
        return b""
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return b""
        return os.pread(descriptor, limit, max(0, status.st_size - limit))
    finally:
        os.close(descriptor)


def read_untrusted(path: Path, kind: type[T]) -> T | None:
    """The record at `path`; None where there is none, or none that can be read."""
    raw = read_tail(path, RECORD_LIMIT)
    try:
        return kind.model_validate_json(raw) if raw else None
    except ValidationError:
        return None


def open_inside(root: Path, *parts: str) -> BinaryIO | None:
    """The file `parts` below `root`, unbuffered; None where there is none.

    Raises DataError where a part is a link or the file is no regular one, and OSError.
    """
    try:
        with _folder(root, *parts[:-1]) as folder:
            # Without O_NONBLOCK a pipe in the file's place would block the worker.
            descriptor = os.open(parts[-1], _FLAGS | os.O_NONBLOCK, dir_fd=folder)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno in {errno.ELOOP, errno.ENOTDIR}:
            raise DataError(f"{'/'.join(parts)} is a link or lies behind one") from None
        if error.errno in {errno.EACCES, errno.ENXIO}:  # the job took our right to read it; a socket
            raise DataError(f"{'/'.join(parts)} cannot be opened") from None
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise DataError(f"{'/'.join(parts)} is no regular file")
    return os.fdopen(descriptor, "rb", buffering=0)


def folders_inside(root: Path, *parts: str) -> list[str]:
    """The names of the folders in the folder `parts` below `root`, sorted; none behind a link. Raises OSError."""
    try:
        with _folder(root, *parts) as folder, os.scandir(folder) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
    except (FileNotFoundError, NotADirectoryError, PermissionError):  # the job's own doing; waiting would not end
        return []
    except OSError as error:
        if error.errno == errno.ELOOP:
            return []
        raise


def remove_inside(root: Path, *parts: str) -> bool:
    """Removes the folder `parts` below `root`, as far as it can be removed. False where something of it is left."""
    # A link, a folder that the job took our right to change, one of a thousand levels.
    with suppress(OSError, RecursionError), _folder(root, *parts[:-1]) as folder:
        shutil.rmtree(parts[-1], ignore_errors=True, dir_fd=folder)
    return not os.path.lexists(root.joinpath(*parts))


@contextmanager
def _folder(root: Path, *parts: str) -> Generator[int]:
    """A descriptor of a folder. Raises OSError, also where a part is a link."""
    folder = os.open(root, _FLAGS | os.O_DIRECTORY)
    try:
        for part in parts:
            child = os.open(part, _FLAGS | os.O_DIRECTORY, dir_fd=folder)
            os.close(folder)
            folder = child
        yield folder
    finally:
        os.close(folder)

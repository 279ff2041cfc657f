"""Writes files that only their owner can read, and says of a file whether it is one."""

import errno
import fcntl
import os
from pathlib import Path
import stat
from typing import IO

from torchyard.host.recordfiles import sync_folder


def write_private(path: Path, text: str) -> None:
    """Replaces the file: a reader sees the old one or the new one. Others can never read it. Raises OSError."""
    write_held(path, text).close()


def write_held(path: Path, text: str) -> IO[str]:
    """Does what `write_private` does, and returns the file, which is locked until it is closed or this process ends.

    Raises OSError.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.unlink(missing_ok=True)
    new = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    file = os.fdopen(os.open(temporary, new, 0o600), "w", encoding="utf-8")
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        file.close()
        raise
    return file


def open_own(path: Path) -> IO[bytes]:
    """Opens the file for reading. Raises OSError, and PermissionError that says why for a file that is not private to
    this user: a link, no regular file, another user's, or one that others may read or write.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if path.is_symlink():
            raise PermissionError(error.errno, "it is a link", str(path)) from None
        raise
    file = os.fdopen(descriptor, "rb")
    if (wrong := _why_not_own(os.fstat(descriptor))) is not None:
        file.close()
        raise PermissionError(errno.EPERM, wrong, str(path))
    return file


def is_held(file: IO[bytes]) -> bool:
    """Whether a process that lives has locked the file, as `write_held` does. Raises OSError."""
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False


def create_private(path: Path, text: str) -> bool:
    """Creates the file unless it exists: a reader sees all of it or nothing. Returns whether it is new.

    Durable when this returns. Raises OSError.
    """
    temporary = path.with_name(f".{path.name}.{os.urandom(8).hex()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.link(temporary, path)
    except FileExistsError:
        return False
    finally:
        temporary.unlink()
    sync_folder(path.parent)
    return True


def _why_not_own(status: os.stat_result) -> str | None:
    if not stat.S_ISREG(status.st_mode):
        return "it is no regular file"
    if status.st_uid != os.geteuid():
        return f"it belongs to the user {status.st_uid}, and you are {os.geteuid()}"
    mode = stat.S_IMODE(status.st_mode)
    return f"others may use it, too: its mode is {mode:04o}" if mode & 0o077 else None

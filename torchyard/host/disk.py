"""Recognizes a full disk and a disk of another machine, and retries until there is space."""

from collections.abc import Callable, Set
import contextlib
import errno
import os
from pathlib import Path
import shutil
import time
from typing import TypeVar

T = TypeVar("T")

FULL: Set[int] = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""Errors of a write when the disk, a quota or a limit has no space left."""
SCARCE: Set[int] = FULL | {errno.ENFILE, errno.EMFILE, errno.ENOMEM, errno.EAGAIN}
"""Errors that pass as soon as somebody frees disk space, files, memory or processes."""
PASSING: Set[int] = SCARCE | {errno.EIO, errno.EROFS, errno.ESTALE}
"""Errors that the host causes, not a program. They may pass."""

NETWORKED: Set[str] = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs", "ceph", "lustre", "glusterfs", "fuse.glusterfs"}
)
"""File systems of other machines, as `file_system` names them."""

_SHORT_BYTES = 1 << 30
_PROBE_BYTES = 64 * 1024  # more than a record of a run directory has


def retry_while_unavailable(
    work: Callable[[], T],
    *,
    seconds: float,
    on_error: Callable[[OSError], object],
    errnos: Set[int] = FULL,
    pause_s: float = 1.0,
) -> T:
    """Calls `work` until it returns, for at most `seconds`, and returns its result.

    Retries after an OSError of `errnos`, and calls `on_error` with it before each pause. Raises every other error at
    once, and the last OSError when the time is over.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            return work()
        except OSError as error:
            if error.errno not in errnos or time.monotonic() >= deadline:
                raise
            on_error(error)
        time.sleep(pause_s)


def full_disk_error(error: BaseException) -> OSError | None:
    """Finds the OSError of a full disk: `error`, its cause, or the error that was handled when it was raised.

    Returns None if there is none.
    """
    seen: set[int] = set()
    found: BaseException | None = error
    while found is not None and id(found) not in seen:
        if isinstance(found, OSError) and found.errno in FULL:
            return found
        seen.add(id(found))
        found = found.__cause__ or (None if found.__suppress_context__ else found.__context__)
    return None


def require_free_space(folder: Path, size: int) -> None:
    """Raises the OSError of a full disk if the disk of `folder` has less than `size` bytes free."""
    if shutil.disk_usage(folder).free < size:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder))


def is_short(folder: Path) -> bool:
    """Returns whether the disk of `folder` has less than 1 GiB free, or takes no small file. Raises OSError."""
    return has_little_space(folder) or probe_full_disk(folder) is not None


def has_little_space(folder: Path) -> bool:
    """Returns whether the disk of `folder` has less than 1 GiB free. Writes nothing. Raises OSError."""
    return shutil.disk_usage(folder).free < _SHORT_BYTES


def probe_full_disk(folder: Path) -> OSError | None:
    """Writes and removes a small file in `folder`. Returns the OSError if the disk is full, else None.

    It writes because a quota, or space that a file system reserves, is not visible in the count of free bytes.
    """
    probe = folder / f".room.{os.getpid()}"
    try:
        with probe.open("xb", buffering=0) as file:  # exclusive creation follows no link that a job has made
            left = memoryview(bytes(_PROBE_BYTES))
            while left:
                left = left[file.write(left) :]
            os.fsync(file.fileno())
    except OSError as error:
        return error if error.errno in FULL else None
    finally:
        with contextlib.suppress(OSError):
            probe.unlink()
    return None


def file_system(place: Path) -> str:
    """Returns the name of the file system at the longest mount point above `place`."""
    found, longest = "an unknown file system", -1
    try:
        lines = Path("/proc/self/mounts").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return found
    for line in lines:
        _, point, kind, *_ = line.split(" ")
        if place.resolve().is_relative_to(point) and len(point) >= longest:
            found, longest = kind, len(point)
    return found

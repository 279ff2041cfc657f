"""A disk that is full: how it is told from other trouble, and how to wait until there is room."""

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
"""What a write meets where there is no room, by the disk, a quota or a limit."""
SCARCE: Set[int] = FULL | {errno.ENFILE, errno.EMFILE, errno.ENOMEM, errno.EAGAIN}
"""What passes as soon as somebody makes room."""
PASSING: Set[int] = SCARCE | {errno.EIO, errno.EROFS, errno.ESTALE}
"""What is the host's trouble and no program's: it may pass, too."""

_PROBE_BYTES = 64 * 1024  # more than a record of a run directory has


def insist(
    work: Callable[[], T],
    *,
    seconds: float,
    on_refusal: Callable[[OSError], object],
    errnos: Set[int] = FULL,
    pause_s: float = 1.0,
) -> T:
    """What `work` answers. Where it raises an OSError of `errnos` it is done again, until `seconds` have passed.

    `on_refusal` is told each of those, before the pause that follows. Raises what `work` raises last.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            return work()
        except OSError as error:
            if error.errno not in errnos or time.monotonic() >= deadline:
                raise
            on_refusal(error)
        time.sleep(pause_s)


def refusal(error: BaseException) -> OSError | None:
    """The full disk's own error: `error`, or the one that it was raised from or came up behind. None where none is."""
    seen: set[int] = set()
    found: BaseException | None = error
    while found is not None and id(found) not in seen:
        if isinstance(found, OSError) and found.errno in FULL:
            return found
        seen.add(id(found))
        found = found.__cause__ or (None if found.__suppress_context__ else found.__context__)
    return None


def check_room(folder: Path, size: int) -> None:
    """Raises the OSError of a full disk where that of `folder` has no room for `size` bytes."""
    if shutil.disk_usage(folder).free < size:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder))


def full(folder: Path) -> OSError | None:
    """What the disk of `folder` answers to a small file, which is removed again; None where it takes it.

    Asked by writing, as a quota, or what a file system keeps for itself, shows in no count of free bytes. Another
    trouble than a full disk is none here.
    """
    probe = folder / f".room.{os.getpid()}"
    try:
        with probe.open("xb", buffering=0) as file:  # no link of a job is followed
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

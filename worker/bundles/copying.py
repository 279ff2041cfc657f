"""Copies the tree of a bundle for one attempt, which may write its copy."""

from collections.abc import Callable
from contextlib import suppress
import errno
import fcntl
import os
from pathlib import Path

from torchyard.host.untrusted import folder_inside

FICLONE = 0x40049409
"""The request that makes a file share the blocks of another one."""
NO_CLONES = {errno.EOPNOTSUPP, errno.ENOTTY, errno.EINVAL, errno.EXDEV, errno.ENOSYS, errno.EPERM}
"""Errors of file systems that cannot do that."""
_CHUNK = 1 << 24
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def copy_tree(source: Path, target: Path, *, check: Callable[[], object] = lambda: None) -> None:
    """Copies the folder `source`, which has folders and regular files alone, to the new folder `target`.

    The copies belong to the attempt alone: they share blocks where the file system can do that until one is written,
    and are never second names of the same file. `check` is called before each file and each 16 MiB of one, and may
    raise to end the copy. Raises OSError.
    """
    target.mkdir(mode=0o700)
    with os.scandir(source) as listing:
        entries = list(listing)  # few descriptors are open at any depth
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            copy_tree(source / entry.name, target / entry.name, check=check)
        else:
            _copy_file(entry.path, target / entry.name, check)


def copy_missing(source: Path, target: Path, *, check: Callable[[], object] = lambda: None) -> None:
    """Copies what of the folder `source` is missing in `target`, which a job may have filled. Follows no link there.

    What has the name of something else there stays out. Raises OSError, and what `check` raises.
    """
    for folder, folders, files in os.walk(source):
        parts = Path(folder).relative_to(source).parts
        try:
            with folder_inside(target, *parts) as opened:
                for name in folders:
                    with suppress(FileExistsError):
                        os.mkdir(name, 0o700, dir_fd=opened)
                for name in files:
                    with suppress(FileExistsError):
                        _copy_file(os.path.join(folder, name), name, check, folder=opened)  # noqa: PTH118 text
        except OSError as error:
            if error.errno not in {errno.ENOTDIR, errno.ELOOP, errno.ENOENT, errno.EACCES}:
                raise


def _copy_file(source: str, target: Path | str, check: Callable[[], object], *, folder: int | None = None) -> None:
    check()
    reading = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        mode = 0o700 if os.fstat(reading).st_mode & 0o100 else 0o600
        writing = os.open(target, _NEW, mode, dir_fd=folder)
        try:
            _clone(reading, writing, check)
        finally:
            os.close(writing)
    finally:
        os.close(reading)


def _clone(reading: int, writing: int, check: Callable[[], object]) -> None:
    try:
        fcntl.ioctl(writing, FICLONE, reading)
    except OSError as error:
        if error.errno not in NO_CLONES:
            raise
        while os.sendfile(writing, reading, None, _CHUNK):  # from where the last call ended
            check()

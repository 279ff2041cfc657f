"""Opens what a sandbox names, for rules and mounts.

A name in a folder that a job or a build could write may have become a link to anything, such as `/proc/self/cwd`. So
names are made canonical while nobody but the service can change them, and no link is followed when they are opened.
"""

from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
import errno
import os
from pathlib import Path
import stat

_ON_THE_WAY = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_LAST = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC

Identity = tuple[int, int]
"""Device and inode."""


@dataclass(frozen=True)
class Closed:
    """What a sandbox must not open to jobs."""

    wide: frozenset[Identity]
    """Folders that contain what is not the attempt's own."""
    data_dir: Identity | None = None
    """Nothing below it is opened but `own`."""
    own: tuple[str, ...] = ()
    """Canonical paths below the data directory that are the attempt's own, with all below them."""


def closed_of(folders: Iterable[str], *, data_dir: str = "", own: Iterable[str] = ()) -> Closed:
    """Returns what is closed: `folders`, what contains one, and what lies in the data directory but is not `own`."""
    inner = _identity(Path(data_dir)) if data_dir else None
    return Closed(folders_above([*folders, *([data_dir] if data_dir else ())]), inner, tuple(own))


def open_allowed(path: str, closed: Closed) -> int:
    """Returns what `open_real` does. Raises PermissionError, too, for what is closed."""
    with ways() as way:
        return way.open_allowed(path, closed)


class Way:
    """Opens paths as `open_allowed` does. Keeps the folders on the way open, as the next path often shares them."""

    def __init__(self) -> None:
        self._folders: dict[tuple[str, ...], tuple[int, tuple[Identity, ...]]] = {}
        """By the names on the way: a descriptor, and the folders from the root to this one."""

    def open(self, path: str) -> int:
        """Returns a descriptor that names what is at a canonical path. Raises OSError, also for a link in it."""
        return self._open(path)[0]

    def open_allowed(self, path: str, closed: Closed) -> int:
        opened, passed = self._open(path)
        try:
            require_narrow(opened, path, wide=closed.wide)
            if closed.data_dir in passed and not _is_own(path, closed):
                raise PermissionError(errno.EPERM, "a sandbox must not open the service's own files to jobs", path)
        except BaseException:
            os.close(opened)
            raise
        return opened

    def close(self) -> None:
        for descriptor, _ in self._folders.values():
            os.close(descriptor)
        self._folders.clear()

    def _open(self, path: str) -> tuple[int, tuple[Identity, ...]]:
        """Returns a descriptor of what is at the path, and the folders on the way."""
        names = _names(path)
        if ".." in names:  # a path below an own folder would lead out of it
            raise PermissionError(errno.EPERM, "a part of it leads upwards", path)
        if not names:
            return os.open("/", _ON_THE_WAY), ()
        try:
            folder, passed = self._folder(tuple(names[:-1]))
            opened = os.open(names[-1], _LAST, dir_fd=folder)
        except NotADirectoryError:
            raise NotADirectoryError(errno.ENOTDIR, "a part is a link or no folder", path) from None
        except OSError as error:
            raise type(error)(error.errno, error.strerror, path) from None
        if stat.S_ISLNK(os.fstat(opened).st_mode):
            os.close(opened)
            raise OSError(errno.ELOOP, "it is a link", path)
        return opened, passed

    def _folder(self, names: tuple[str, ...]) -> tuple[int, tuple[Identity, ...]]:
        known = self._folders.get(names)
        if known is not None:
            return known
        if names:
            outer, above = self._folder(names[:-1])
            opened = os.open(names[-1], _ON_THE_WAY, dir_fd=outer)
        else:
            opened, above = os.open("/", _ON_THE_WAY), ()
        status = os.fstat(opened)
        entered = self._folders[names] = opened, (*above, (status.st_dev, status.st_ino))
        return entered


def ways() -> closing[Way]:
    """Returns a context with a new `Way`, which is closed at its end."""
    return closing(Way())


def canonical(path: Path) -> str:
    """Returns the name of `path` without links on the way to it. The last name stays, also if it is a link.

    Only the service may be able to write the folder of `path`.
    """
    return os.path.join(os.path.realpath(path.parent), path.name)  # noqa: PTH118 it is kept as text


def open_real(path: str) -> int:
    """Returns a descriptor that names the file or folder at a canonical path. Raises OSError, also for a link in it."""
    with ways() as way:
        return way.open(path)


def enter_real(path: str) -> None:
    """Makes the folder at a canonical path the working directory. Raises OSError as `open_real` does."""
    opened = open_real(path)
    try:
        os.fchdir(opened)
    finally:
        os.close(opened)


def _names(path: str) -> list[str]:
    """Returns the names of an absolute path. A sandbox opens a hundred, and `pathlib` would take most of its time."""
    return [name for name in path.split("/") if name not in ("", ".")]


def _is_own(path: str, closed: Closed) -> bool:
    """Returns whether the path, which does not lead upwards, is or lies below one that is the attempt's own."""
    names = _names(path)
    return any(names[: len(own)] == own for own in map(_names, closed.own))


def folders_above(closed: Iterable[str]) -> frozenset[Identity]:
    """Returns the folders `closed`, with all that contain one of them. Those that do not exist are left out."""
    folders = {outer for path in closed for outer in (Path(path), *Path(path).parents)}
    return frozenset(identity for folder in folders if (identity := _identity(folder)) is not None)


def require_narrow(descriptor: int, path: str, *, wide: frozenset[Identity]) -> None:
    """Raises PermissionError if an open file or folder is among `wide`: what `folders_above` returned."""
    status = os.fstat(descriptor)
    if (status.st_dev, status.st_ino) in wide:
        raise PermissionError(
            errno.EPERM,
            "a sandbox must not open this folder to jobs: it contains the data directory or what others have in it",
            path,
        )


def check_names(paths: Iterable[Path], *, closed: Sequence[str]) -> None:
    """Raises PermissionError if one of the existing paths is or contains a folder of `closed`."""
    wide = folders_above(closed)
    for path in paths:
        if path.exists():
            descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
            try:
                require_narrow(descriptor, str(path), wide=wide)
            finally:
                os.close(descriptor)


def _identity(folder: Path) -> Identity | None:
    try:
        status = folder.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino

"""Lists, measures and removes what a training process wrote, without following links."""

from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager, suppress
import errno
from itertools import islice
import os
from pathlib import Path
import stat
import time
from uuid import uuid4

from torchyard.host.untrusted import folder_inside

_BRIEF_S = 1.0
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def folders_inside(root: Path, *parts: str, most: int | None = None) -> list[str]:
    """Returns the sorted names of the folders in `root/parts…`. Returns none if a part is a link. Raises OSError.

    `most`: how many entries are looked at.

    Makes the folder readable for its owner.
    """
    try:
        with _unlocked_inside(root, *parts) as folder, os.scandir(folder) as entries:
            some = islice(entries, most)
            return sorted(entry.name for entry in some if entry.is_dir(follow_symlinks=False))
    except (
        FileNotFoundError,
        NotADirectoryError,
        PermissionError,
    ):  # the job did this itself, so a retry would not help
        return []
    except OSError as error:
        if error.errno == errno.ELOOP:
            return []
        raise


def remove_inside(root: Path, *parts: str, may_continue: Callable[[], bool] = lambda: True) -> bool:
    """Removes `root/parts…` as far as possible, until `may_continue` returns False. Never touches a link's target.

    Returns False if something of it is left. The next call goes on from there.
    """
    try:
        with _unlocked_inside(root, *parts[:-1]) as parent:
            _remove(parent, parts[-1], may_continue)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def remove_checked(root: Path, *parts: str, check: Callable[[], object]) -> None:
    """Removes `root/parts…` as `remove_inside` does. `check` is called at each entry, and may raise to end it."""

    def may_continue() -> bool:
        check()
        return True

    remove_inside(root, *parts, may_continue=may_continue)


def remove_briefly(root: Path, *parts: str) -> None:
    """Removes what it can of `root/parts…` in a second, as `remove_inside` does. For what others remove, too."""
    ends = time.monotonic() + _BRIEF_S
    remove_inside(root, *parts, may_continue=lambda: time.monotonic() < ends)


def make_accessible(root: Path, *parts: str) -> None:
    """Makes the folder `root/parts…` readable and writable for its owner. Raises OSError, also if a part is a link."""
    with _unlocked_inside(root, *parts):
        pass


def walk_status(folder: Path, *, unlock: bool = False) -> Generator[os.stat_result]:
    """Yields the status of the folder and of all below it, at any depth. Follows no link, and skips what vanishes.

    Skips what the owner made unreadable, or makes it readable if `unlock`.
    """
    with suppress(OSError), ExitStack() as stack:
        current = os.open(folder.parent, _FOLDER)
        stack.callback(lambda: os.close(current))
        yield os.stat(folder.name, dir_fd=current, follow_symlinks=False)
        levels = [(_identity(current), [folder.name])]
        while levels:
            names = levels[-1][1]
            if names:
                with suppress(OSError):
                    inner = _open_inner(current, names.pop(), unlock=unlock)
                    os.close(current)
                    current = inner
                    levels.append((_identity(current), []))
                    yield from _statuses(current, levels[-1][1])
                continue
            levels.pop()
            if levels:
                outer = os.open("..", _FOLDER, dir_fd=current)
                os.close(current)
                current = outer
                if _identity(current) != levels[-1][0]:  # the folder was moved, perhaps to lead outside
                    return


def _statuses(folder: int, folders: list[str]) -> Generator[os.stat_result]:
    """Yields the status of each entry, and adds the names of the folders to `folders`."""
    with os.scandir(folder) as entries:
        for entry in entries:
            with suppress(OSError):
                status = entry.stat(follow_symlinks=False)
                if stat.S_ISDIR(status.st_mode):
                    folders.append(entry.name)
                yield status


def _remove(parent: int, name: str, may_continue: Callable[[], bool]) -> None:
    """Moves every folder below it to its top level and empties it there: so few descriptors are open at any depth."""
    if _removed_at_once(parent, name):
        return
    with _unlocked(parent, name) as top:
        pending = _empty(top, top, may_continue)
        while pending and may_continue():
            inner = pending.pop()
            with suppress(OSError):
                with _unlocked(top, inner) as folder:
                    pending += _empty(folder, top, may_continue)
                os.rmdir(inner, dir_fd=top)
    os.rmdir(name, dir_fd=parent)


def _empty(folder: int, top: int, may_continue: Callable[[], bool]) -> list[str]:
    """Removes the files and empty folders in `folder`, and moves its other folders to `top`. Returns their names."""
    moved: list[str] = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if not may_continue():
                break
            with suppress(OSError):
                if _removed_at_once(folder, entry.name):
                    continue
                name = entry.name
                if folder != top:
                    name = f".{uuid4().hex}"
                    _make_accessible(folder, entry.name)  # a folder must be writable to be moved
                    os.rename(entry.name, name, src_dir_fd=folder, dst_dir_fd=top)
                moved.append(name)
    return moved


def _removed_at_once(parent: int, name: str) -> bool:
    """Removes what is not a folder, or is an empty one. Raises OSError, also for a mount point."""
    try:
        os.unlink(name, dir_fd=parent)
    except IsADirectoryError:
        try:
            os.rmdir(name, dir_fd=parent)
        except OSError as error:
            if error.errno in {errno.ENOTEMPTY, errno.EEXIST}:
                return False
            raise
    return True


@contextmanager
def _unlocked_inside(root: Path, *parts: str) -> Generator[int]:
    """As `folder_inside`, but makes each of `parts` accessible first."""
    with ExitStack() as stack:
        folder = stack.enter_context(folder_inside(root))
        for part in parts:
            folder = stack.enter_context(_unlocked(folder, part))
        yield folder


@contextmanager
def _unlocked(parent: int, name: str) -> Generator[int]:
    """Makes a folder accessible to its owner and opens it. Raises OSError, also for a link."""
    _make_accessible(parent, name)
    folder = os.open(name, _FOLDER, dir_fd=parent)
    try:
        yield folder
    finally:
        os.close(folder)


def _make_accessible(parent: int, name: str) -> None:
    handle = os.open(name, os.O_PATH | _FOLDER, dir_fd=parent)
    try:
        mode = stat.S_IMODE(os.fstat(handle).st_mode)
        if mode & stat.S_IRWXU != stat.S_IRWXU:
            # exactly this folder, even if it was renamed
            os.chmod(f"/proc/self/fd/{handle}", mode | stat.S_IRWXU)  # noqa: PTH101
    finally:
        os.close(handle)


def _open_inner(parent: int, name: str, *, unlock: bool) -> int:
    """Opens a folder from which `..` can be opened. Raises OSError, also for a link."""
    if unlock:
        _make_accessible(parent, name)
    folder = os.open(name, _FOLDER, dir_fd=parent)
    try:
        os.stat(".", dir_fd=folder)
    except OSError:
        os.close(folder)
        raise
    return folder


def _identity(folder: int) -> tuple[int, int]:
    status = os.fstat(folder)
    return status.st_dev, status.st_ino

"""Lists and removes what a training process wrote, without following links."""

from collections.abc import Generator
from contextlib import contextmanager, suppress
import errno
import os
from pathlib import Path
from uuid import uuid4

from torchyard.contract.untrusted import folder_inside


def folders_inside(root: Path, *parts: str) -> list[str]:
    """Returns the sorted names of the folders in `root/parts…`. Returns none if a part is a link. Raises OSError."""
    try:
        with folder_inside(root, *parts) as folder, os.scandir(folder) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
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


def remove_inside(root: Path, *parts: str) -> bool:
    """Removes the folder `root/parts…` as far as possible. Returns False if something of it is left."""
    with suppress(OSError), folder_inside(root, *parts[:-1]) as parent:  # a link is not removed
        _remove(parent, parts[-1])
    return not os.path.lexists(root.joinpath(*parts))


def _remove(parent: int, name: str) -> None:
    """Moves every folder below it to its top level and empties it there: so few descriptors are open at any depth."""
    with _unlocked(parent, name) as top:
        pending = _empty(top, top)
        while pending:
            inner = pending.pop()
            with suppress(OSError):
                with _unlocked(top, inner) as folder:
                    pending += _empty(folder, top)
                os.rmdir(inner, dir_fd=top)
    os.rmdir(name, dir_fd=parent)


def _empty(folder: int, top: int) -> list[str]:
    """Removes the files in `folder` and moves its folders to `top`. Returns their names there."""
    moved: list[str] = []
    with os.scandir(folder) as entries:
        for entry in entries:
            with suppress(OSError):
                if not entry.is_dir(follow_symlinks=False):
                    os.unlink(entry.name, dir_fd=folder)
                    continue
                name = entry.name
                if folder != top:
                    name = f".{uuid4().hex}"
                    with _unlocked(folder, entry.name):  # a folder must be writable to be moved
                        os.rename(entry.name, name, src_dir_fd=folder, dst_dir_fd=top)
                moved.append(name)
    return moved


@contextmanager
def _unlocked(parent: int, name: str) -> Generator[int]:
    """Makes a folder writable for its owner and opens it. Raises OSError, also for a link."""
    handle = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    try:
        os.chmod(f"/proc/self/fd/{handle}", 0o700)  # noqa: PTH101 exactly this folder, even if it was renamed
    finally:
        os.close(handle)
    with _opened(parent, name) as folder:
        yield folder


@contextmanager
def _opened(parent: int, name: str) -> Generator[int]:
    folder = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    try:
        yield folder
    finally:
        os.close(folder)

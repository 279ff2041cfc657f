"""The mounts of a job at paths of its working folder: links to folders that it reads.

No process of the job runs meanwhile. What the job has left may be hostile: no link of it is followed. What this module
has made is known by its target, which the worker's own record has.
"""

from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager, suppress
import errno
import os
from pathlib import Path

from torchyard.contract.bundles.mounting import parts_of
from torchyard.host.untrusted import folder_inside
from worker.host.untrusted import make_accessible

_ASIDE = "set-aside"
_MOST_ASIDE = 1000
_MOST_NAME = 200
"""Bytes that are kept of the name of what is set aside."""
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def withdraw(folder: Path, made: Mapping[str, str]) -> None:
    """Removes the links that were made here, by their paths. What has replaced them stays. Raises OSError."""
    for path, target in made.items():
        *above, name = parts_of(path)
        with suppressed(errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EACCES, errno.EINVAL):
            make_accessible(folder, *above)
            with folder_inside(folder, *above) as opened:
                if os.readlink(name, dir_fd=opened) == target:
                    os.unlink(name, dir_fd=opened)


def make(folder: Path, wanted: Mapping[str, str]) -> str:
    """Makes the links, by their paths. Returns what to tell of what lay there; empty: nothing. Raises OSError.

    It is renamed. An empty folder goes.
    """
    messages: list[str] = []
    for path, target in wanted.items():
        *above, name = parts_of(path)
        with _made(folder, above, messages) as opened:
            _clear(opened, name, messages, shown=above)
            os.symlink(target, name, dir_fd=opened)
    return "; ".join(messages)


@contextmanager
def suppressed(*numbers: int) -> Generator[None]:
    """Passes over system errors with these numbers."""
    try:
        yield
    except OSError as error:
        if error.errno not in numbers:
            raise


@contextmanager
def _made(root: Path, parts: list[str], messages: list[str]) -> Generator[int]:
    """Opens a folder, of which it makes what is missing."""
    with ExitStack() as stack:
        make_accessible(root)
        folder = stack.enter_context(folder_inside(root))
        for depth, part in enumerate(parts):
            try:
                make_accessible(root, *parts[: depth + 1])
            except OSError as error:
                if error.errno not in {errno.ENOENT, errno.ENOTDIR, errno.ELOOP}:
                    raise
                _clear(folder, part, messages, shown=parts[:depth])
                os.mkdir(part, 0o700, dir_fd=folder)
            folder = os.open(part, _FOLDER, dir_fd=folder)
            stack.callback(os.close, folder)
        yield folder


def _clear(folder: int, name: str, messages: list[str], *, shown: list[str]) -> None:
    """Renames what has this name in the folder."""
    with suppress(FileNotFoundError), suppressed(errno.ENOTDIR, errno.ENOTEMPTY, errno.EEXIST, errno.ELOOP):
        os.rmdir(name, dir_fd=folder)
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return
    short = name.encode()[:_MOST_NAME].decode(errors="ignore")
    for number in range(1, _MOST_ASIDE):
        other = f"{short}.{_ASIDE}" + (f"-{number}" if number > 1 else "")
        try:
            os.stat(other, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            os.rename(name, other, src_dir_fd=folder, dst_dir_fd=folder)
            path = "/".join((*shown, name))
            messages.append(f"{path} makes room for a mount, and is {'/'.join((*shown, other))} now")
            return
    raise OSError(errno.EEXIST, f"there are {_MOST_ASIDE} files beside it that were set aside", name)

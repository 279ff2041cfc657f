"""Run by a job: tries to open each file of `/proc` for writing, in each way and by each link, and prints which it got.

Of the processes of others, where it sees any, it looks at the first one and at its own parent.
"""

from collections.abc import Callable, Iterable, Iterator
import ctypes
from functools import partial
import json
import os
from pathlib import Path
import stat
import sys
import threading

PROC = "/proc"
FLAGS = (os.O_WRONLY, os.O_WRONLY | os.O_CREAT, os.O_RDWR, os.O_WRONLY | os.O_APPEND, os.O_RDWR | os.O_TRUNC)
MOST_PROCESSES = 20
"""More are those of the host."""


def main() -> None:
    other = threading.Thread(target=threading.Event().wait, daemon=True)
    other.start()
    named = ctypes.CDLL(None).pthread_setname_np(ctypes.c_ulong(other.ident or 0), b"named")
    sys.stdout.write(json.dumps({"named": named == 0, "opened": opened()}))


def opened(tried: Iterable[tuple[str, int]] | None = None) -> list[str]:
    """Returns each file of `/proc` that could be opened for writing, and each that was open so from the start.

    `tried`: some of what `files` yields, or else all.
    """
    numbers = [int(path.name) for path in Path("/proc/self/fd").iterdir()]
    inherited = [f"descriptor {number}" for number in numbers if _is_written(number)]
    ways: list[Callable[[str], int]] = [partial(_directly, flags=flags) for flags in FLAGS]
    ways += [_by_folder, _by_name_alone, _by_reading, _truncated]
    # No mode without such a bit lets anybody write: two ways show it.
    tried = files() if tried is None else tried
    got = [path for path, mode in tried if any(_opens(way, path) for way in (ways if mode & 0o222 else ways[:2]))]
    return inherited + got


def files() -> Iterator[tuple[str, int]]:
    """Yields the path and the mode of each file of `/proc`, also of those by a link. A path has one link at most."""
    folders, device = [(PROC, False)], Path(PROC).stat().st_dev
    while folders:
        folder, by_link = folders.pop()
        for entry in _entries(folder):
            try:
                found, is_link = entry.stat(), entry.is_symlink()
            except OSError:
                continue
            if found.st_dev != device or (is_link and by_link):
                continue
            if stat.S_ISDIR(found.st_mode):
                folders.append((entry.path, is_link or by_link))
            else:
                yield entry.path, found.st_mode


def _entries(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as found:
            entries = list(found)
    except OSError:
        return []
    numbers = [entry.name for entry in entries if entry.name.isdigit()]
    if folder != PROC or len(numbers) < MOST_PROCESSES:
        return entries
    few = {"1", str(os.getpid()), str(os.getppid())}
    return [entry for entry in entries if not entry.name.isdigit() or entry.name in few]


def _opens(way: Callable[[str], int], path: str) -> bool:
    """Returns whether the way opens the file, and nothing else in its place."""
    try:
        descriptor = way(path)
    except OSError:
        return False
    try:
        return os.fstat(descriptor).st_dev == Path(PROC).stat().st_dev
    finally:
        os.close(descriptor)


def _directly(path: str, *, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)


def _by_folder(path: str) -> int:
    above, _, name = path.rpartition("/")
    folder = os.open(above, os.O_PATH)
    try:
        return os.open(name, os.O_WRONLY | os.O_NONBLOCK, dir_fd=folder)
    finally:
        os.close(folder)


def _by_name_alone(path: str) -> int:
    return _reopened(os.open(path, os.O_PATH))


def _by_reading(path: str) -> int:
    return _reopened(os.open(path, os.O_RDONLY | os.O_NONBLOCK))


def _reopened(descriptor: int) -> int:
    try:
        return os.open(f"/proc/self/fd/{descriptor}", os.O_RDWR | os.O_NONBLOCK)
    finally:
        os.close(descriptor)


def _truncated(path: str) -> int:
    os.truncate(path, 0)
    return os.open(path, os.O_PATH)


def _is_written(descriptor: int) -> bool:
    """Returns whether a descriptor is open for writing and is a file of `/proc`."""
    try:
        lines = Path(f"/proc/self/fdinfo/{descriptor}").read_text().splitlines()
        flags = next(int(line.split()[1], 8) for line in lines if line.startswith("flags:"))
        return os.fstat(descriptor).st_dev == Path(PROC).stat().st_dev and bool(flags & os.O_ACCMODE)
    except OSError:  # it was that of the list
        return False


if __name__ == "__main__":
    main()

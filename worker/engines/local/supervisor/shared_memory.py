"""Removes the files that an attempt leaves in a `/dev/shm` which it shares with others."""

from collections.abc import Callable, Iterable
import contextlib
import os
from pathlib import Path
import re
import time

from torchyard.contract.attempts.records import ProcessIdentity

_FOLDER = Path("/dev/shm")  # noqa: S108 what POSIX shared memory uses
_MAPPED = re.compile(r"^\S+ \S+ \S+ \S+ (\d+) +(/dev/shm/\S.*)$", re.MULTILINE)
_LOOK_EVERY_S = 2.0


class SharedMemoryFiles:
    """The files there that the attempt's processes were seen to hold. No other file is ever removed."""

    def __init__(self) -> None:
        self._seen: set[tuple[str, int]] = set()
        """Path and inode."""
        self._next_look = 0.0

    def look(self, find: Callable[[], Iterable[ProcessIdentity]], *, at_once: bool = False) -> None:
        """Notes what the processes that `find` returns hold now, at most every two seconds."""
        if not at_once and time.monotonic() < self._next_look:
            return
        for process in find():
            with contextlib.suppress(OSError):  # it has ended, or permits no inspection
                maps = Path(f"/proc/{process.pid}/maps").read_text(errors="surrogateescape")
                self._seen.update((path, int(inode)) for inode, path in _MAPPED.findall(maps))
                self._seen.update(_opened_by(process.pid))
        self._next_look = time.monotonic() + _LOOK_EVERY_S

    def remove(self) -> None:
        """Removes what was seen, after all processes have ended."""
        for path, inode in self._seen:
            with contextlib.suppress(OSError):
                if os.lstat(path).st_ino == inode and Path(path).parent == _FOLDER:
                    os.unlink(path)  # noqa: PTH108 the name may be no text
        self._seen.clear()


def _opened_by(pid: int) -> Iterable[tuple[str, int]]:
    for entry in os.scandir(f"/proc/{pid}/fd"):
        with contextlib.suppress(OSError):
            target = os.readlink(entry.path)  # noqa: PTH115 as above
            if target.startswith(f"{_FOLDER}/"):
                yield target, entry.stat().st_ino

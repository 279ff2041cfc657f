"""Looks for files with curves, and tells which have anything that was not there before the attempt."""

from collections.abc import Collection, Mapping
import os
from pathlib import Path
import time

from torchyard.contract.errors import DataError
from torchyard.host.untrusted import open_inside
from worker.curves import finding
from worker.curves.brought import Brought, name_of, source_of
from worker.curves.kinds import EVENTS, kind_of
from worker.host.looks import Parts

MOST_COMPARED = 1000
"""Files that one look compares with those from before the attempt. The next look goes on with the others."""
LOOK_S = 3.0
"""Seconds between two searches for new files."""
_LOOK_SHARE = 50
"""Pause after a search, as a multiple of its duration."""


class Looking:
    """Finds the files with curves below `root`. `job`: as in `finding.find`. `brought`: those before the attempt."""

    def __init__(self, root: Path, job: Parts, *, brought: Brought, look_s: float) -> None:
        self.files: dict[str, Parts] = {}
        """Those that are read, by `name_of` their paths."""
        self.starts: dict[str, int] = {}
        """Where to begin to read a file. Not of those that were read before a restart."""
        self.folders: frozenset[Parts] = frozenset()
        """Folders with event files."""
        self.has_waiting = False
        """Whether files wait for the next look to be compared."""
        self._root = root
        self._job = job
        self._brought = brought
        self._look_s = look_s
        self._next_look = 0.0
        self._idle: dict[str, tuple[int, ...]] = {}
        """Files that have nothing new, and what each was."""
        self._full: set[str] = set()
        """The sources of which no more files are read."""
        self._comparisons = 0
        """How many more files this look may compare."""

    @property
    def is_due(self) -> bool:
        return time.monotonic() >= self._next_look

    def look(self, offsets: Collection[str]) -> list[str]:
        """Looks for new files. `offsets`: the names of those that were read. Returns what to tell. Raises OSError."""
        began = time.monotonic()
        self._comparisons, self.has_waiting = MOST_COMPARED, False
        known = {name for name in offsets if source_of(name) is not None} | self.files.keys()
        paths = {name_of(parts): parts for parts in finding.find(self._root, self._job)}
        paths = {name: parts for name, parts in paths.items() if name in known or self._is_new(name, parts)}
        self.folders = frozenset(parts[:-1] for parts in paths.values() if kind_of(parts) is EVENTS)
        warnings = self._take(paths, known)
        took = time.monotonic() - began
        self._next_look = began + max(self._look_s, _LOOK_SHARE * took)
        return warnings

    def located(self, parts: Parts) -> Parts:
        return finding.located(parts, self._job)

    def _take(self, paths: Mapping[str, Parts], known: set[str]) -> list[str]:
        warnings: list[str] = []
        for name, parts in paths.items():
            kind = kind_of(parts)
            if name not in known and kind.source not in self._full:
                if sum(source_of(each) == kind.source for each in known) < kind.most:
                    known.add(name)
                else:
                    self._full.add(kind.source)
                    warnings.append(f"the attempt writes more than {kind.most} {kind.files}; the others are not read")
            if name in known:
                self.files[name] = parts
        return warnings

    def _is_new(self, name: str, parts: Parts) -> bool:
        kind = kind_of(parts)
        return kind.source not in self._full and (kind.is_database or self._has_new(name, parts))

    def _has_new(self, name: str, parts: Parts) -> bool:
        """Returns whether a file, which was not read yet, has anything that was not there before the attempt.

        Returns False for one that waits to be compared.
        """
        earlier = self._brought.offsets.get(name)
        if earlier is not None:
            self.starts[name] = earlier
            return self._size(parts) != earlier
        if not self._brought.endings:
            return True
        return self._differs(name, parts)

    def _size(self, parts: Parts) -> int | None:
        try:
            return os.lstat(self._root.joinpath(*self.located(parts))).st_size
        except OSError:
            return None

    def _differs(self, name: str, parts: Parts) -> bool:
        """Returns whether a file that may have come with the code has anything that was not there before."""
        try:
            status = self._root.joinpath(*self.located(parts)).lstat()
            identity = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
            if self._idle.get(name) == identity:
                return False
            if self._comparisons <= 0:
                self.has_waiting = True
                return False
            self._comparisons -= 1
            file = open_inside(self._root, *self.located(parts))
        except (DataError, OSError):
            return True  # whoever reads it says why it cannot be read
        if file is not None:
            with file:
                self.starts[name] = self._brought.end_in(file)
        if self.starts.get(name) == status.st_size:
            self._idle[name] = identity
            return False
        return True

"""Walks through a folder that a job writes, and finds the files that patterns name. Follows no link."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
import os
from pathlib import Path
import stat
from typing import TypeAlias

from torchyard.contract.files.paths import DEEPEST, MOST_PATH_BYTES, is_artifact_path
from torchyard.host.untrusted import folder_inside
from worker.attempts.files.matching import Names
from worker.host.looks import Parts

_States: TypeAlias = frozenset[tuple[int, int]]
"""Of some patterns: which one, and the place of its part that the next name is compared with."""
_TICK = 500
"""Entries after which the walk can be interrupted."""
_AT_ONCE = 16
"""Comparing a name with so many parts of patterns counts as a further entry."""
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Entry:
    """What is no folder, or a folder that is not looked into. `parts`: its path below the folder of the walk."""

    parts: Parts
    status: os.stat_result | None
    """None: a folder, or what cannot be read."""
    patterns: frozenset[int] = frozenset()
    """Those by which it was found."""

    @property
    def path(self) -> str:
        return "/".join(self.parts)

    @property
    def why_not(self) -> str | None:
        """Why it cannot be stored by its path; None if it can."""
        if self.parts and not is_artifact_path(self.path):
            return f"its path is unusual, has more than {DEEPEST} names or more than {MOST_PATH_BYTES} bytes"
        if self.status is None:
            return "cannot be read"
        if stat.S_ISLNK(self.status.st_mode):
            return "a link"
        if not stat.S_ISREG(self.status.st_mode):
            return "no regular file"
        return "has other names" if self.status.st_nlink > 1 else None


class TooMany(Exception):
    """There are more entries than the walk may look at."""


class Patterns:
    """Patterns of paths. `*`, `?` and `[…]` match within a name, `**` any folders; a name with a dot first only a dot.

    What matches a folder matches all below it.
    """

    def __init__(self, patterns: Sequence[str]) -> None:
        self._parts = [_parts(pattern) for pattern in patterns]
        self._names = Names()

    @property
    def start(self) -> _States:
        return frozenset((number, 0) for number, parts in enumerate(self._parts) if parts)

    def step(self, states: _States, name: str) -> tuple[_States, frozenset[int]]:
        """Returns the states behind a name, and the patterns that the path to it matches."""
        after: set[tuple[int, int]] = set()
        matched: set[int] = set()
        waiting, seen = list(states), set(states)
        while waiting:
            number, at = waiting.pop()
            part, is_last = self._parts[number][at], at + 1 == len(self._parts[number])
            if part == "**":
                if not name.startswith("."):
                    after.add((number, at))
                    matched |= {number} if is_last else set()
                if not is_last and (number, at + 1) not in seen:
                    seen.add((number, at + 1))
                    waiting.append((number, at + 1))
            elif self._names.match(name, part):
                if is_last:
                    matched.add(number)
                else:
                    after.add((number, at + 1))
        return frozenset(after), frozenset(matched)


class Walk:
    """One walk below `base`, which is below `root`. `most`: how many entries it looks at.

    `patterns`: only what matches; None: everything. `without`: the names of folders that are left out. `since_ns`: only
    files that were created or changed later, by the time that the kernel keeps.
    """

    def __init__(
        self,
        root: Path,
        base: Parts,
        *,
        most: int,
        patterns: Patterns | None = None,
        without: frozenset[str] = frozenset(),
        since_ns: int = 0,
    ) -> None:
        self._root = root
        self._base = base
        self._left = most
        self._patterns = patterns
        self._without = without
        self._since_ns = since_ns

    def entries(self) -> Iterator[Entry | None]:
        """Yields what it finds, and None now and then. Raises TooMany."""
        start = None if self._patterns is None else self._patterns.start
        try:
            with folder_inside(self._root, *self._base) as opened:
                yield from self._look(opened, (), start, frozenset())
        except FileNotFoundError:
            return  # it vanished
        except OSError:
            yield Entry((), None)

    def _look(self, opened: int, folder: Parts, states: _States | None, by: frozenset[int]) -> Iterator[Entry | None]:
        """Looks into an open folder, and at once into each folder there: of few folders it keeps where it is."""
        with os.scandir(opened) as entries:
            for entry in entries:
                if self._count(states):
                    yield None
                after, matched = states, by
                if states is not None and self._patterns is not None:
                    after, matched = self._patterns.step(states, entry.name)
                    if matched:
                        after = None
                    elif not after:
                        continue
                if not entry.is_dir(follow_symlinks=False):
                    if after is None and (file := self._file(folder, entry, matched)) is not None:
                        yield file
                elif entry.name not in self._without:
                    inner = (*folder, entry.name)
                    if is_artifact_path("/".join(inner)):
                        yield from self._enter(opened, inner, after, matched)
                    elif after is None:
                        yield Entry(inner, None, matched)

    def _enter(self, above: int, folder: Parts, states: _States | None, by: frozenset[int]) -> Iterator[Entry | None]:
        try:
            opened = os.open(folder[-1], _FOLDER, dir_fd=above)
        except FileNotFoundError:
            return  # it vanished
        except OSError:
            yield Entry(folder, None, by)
            return
        try:
            yield from self._look(opened, folder, states, by)
        finally:
            os.close(opened)

    def _count(self, states: _States | None) -> bool:
        """Counts an entry. Returns whether the walk can be interrupted. Raises TooMany."""
        before = self._left
        self._left -= 1 + len(states or ()) // _AT_ONCE
        if self._left < 0:
            raise TooMany
        return self._left // _TICK != before // _TICK

    def _file(self, folder: Parts, entry: os.DirEntry[str], by: frozenset[int]) -> Entry | None:
        try:
            status = entry.stat(follow_symlinks=False)
        except FileNotFoundError:
            return None
        return Entry((*folder, entry.name), status, by) if status.st_ctime_ns > self._since_ns else None


def _parts(pattern: str) -> tuple[str, ...]:
    """Returns the parts of a pattern, of several `**` in a row one."""
    parts = [part for part in pattern.split("/") if part not in {"", "."}]
    return tuple(
        part for before, part in pairwise([None, *parts]) if part is not None and (before, part) != ("**", "**")
    )

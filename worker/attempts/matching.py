"""Finds the files that match patterns below a folder that a job writes. Follows no link."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
import fnmatch
import os
from pathlib import Path
from typing import TypeAlias

from torchyard.host.untrusted import folder_inside

Parts: TypeAlias = tuple[str, ...]

_DEEPEST = 12
_MOST_ENTRIES = 50_000
"""Entries of folders that one search looks at."""
_MOST_FOUND = 1000


@dataclass(frozen=True)
class Match:
    """A regular file. `parts` is its path below the folder that was searched from."""

    parts: Parts
    status: os.stat_result


class Search:
    """One search. `*`, `?` and `[…]` match within a name, `**` any folders; a name with a dot first only by a dot."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._left = _MOST_ENTRIES

    def find(self, base: Parts, patterns: Sequence[str]) -> dict[Parts, Match]:
        """Returns the files below `base`, which is below the root, by path. At most 1000, after 50,000 entries."""
        found: dict[Parts, Match] = {}
        for pattern in patterns:
            wanted = tuple(part for part in pattern.split("/") if part not in {"", "."})
            for match in self._expand(base, wanted):
                if len(found) == _MOST_FOUND:
                    return found
                found[match.parts] = match
        return found

    def _expand(self, folder: Parts, wanted: Parts) -> Iterator[Match]:
        if not wanted or len(folder) > _DEEPEST or self._left < 0:
            return
        first, *rest = wanted
        if first == "**":
            yield from self._expand(folder, tuple(rest))
        matches, below = self._look(folder, "*" if first == "**" else first)
        if not rest and first != "**":
            yield from matches
        for name in below:
            yield from self._expand((*folder, name), wanted if first == "**" else tuple(rest))

    def _look(self, folder: Parts, pattern: str) -> tuple[list[Match], list[str]]:
        """Returns the files and the names of folders whose names match."""
        files: list[Match] = []
        folders: list[str] = []
        self._left -= 1  # so that a pattern of many `**` ends, also in empty folders
        try:
            with folder_inside(self._root, *folder) as opened, os.scandir(opened) as entries:
                for entry in entries:
                    self._left -= 1
                    if self._left < 0:
                        break
                    if not matches(entry.name, pattern):
                        continue
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.name)
                    elif entry.is_file(follow_symlinks=False):
                        files.append(Match((*folder, entry.name), entry.stat(follow_symlinks=False)))
        except OSError:  # it vanished, it is a link now, or the job closed it
            pass
        return sorted(files, key=lambda match: match.parts), sorted(folders)


def matches(name: str, pattern: str) -> bool:
    """Returns whether a name matches one part of a pattern."""
    return fnmatch.fnmatchcase(name, pattern) and (not name.startswith(".") or pattern.startswith("."))

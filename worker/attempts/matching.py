"""Finds the files that match patterns below a folder that a job writes. Follows no link."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
import fnmatch
import os
from pathlib import Path
import re
from typing import NamedTuple, Self, TypeAlias

from torchyard.host.untrusted import folder_inside

Parts: TypeAlias = tuple[str, ...]

_DEEPEST = 12
_MOST_ENTRIES = 50_000
"""Entries of folders that one search looks at."""
_MOST_FOUND = 50_000
_WILD = re.compile(r"[*?[]")


@dataclass(frozen=True)
class Match:
    """A regular file. `parts` is its path below the folder that was searched from."""

    parts: Parts
    status: os.stat_result


class Entries(NamedTuple):
    """What lies in a folder: its files, and the names of its folders and of all else."""

    files: list[Match]
    folders: list[str]
    others: list[str]

    def sorted(self) -> Self:
        return self._replace(
            files=sorted(self.files, key=lambda match: match.parts),
            folders=sorted(self.folders),
            others=sorted(self.others),
        )


class Search:
    """One search below `root`.

    `*`, `?` and `[…]` match within a name, `**` any folders; a name with a dot first only by a dot.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.folders: dict[Parts, bool] = {}
        """The folders that `find` has found, and whether a pattern names it: without a wildcard in its last name, or by
        a `/` at its end."""
        self._left = _MOST_ENTRIES
        self._names = Names()

    @property
    def is_cut(self) -> bool:
        """Whether it has not looked at all."""
        return self._left < 0

    def find(self, base: Parts, patterns: Sequence[str]) -> dict[Parts, Match]:
        """Returns the files below `base`, which is below the root, by path. At most 50,000, of as many entries."""
        found: dict[Parts, Match] = {}
        for pattern in patterns:
            wanted = tuple(part for part in pattern.split("/") if part not in {"", "."})
            names_folders = pattern.endswith("/")
            for match in self._expand(base, wanted, names_folders=names_folders):
                if len(found) == _MOST_FOUND:
                    return found
                found[match.parts] = match
        return found

    def entries(self, folder: Parts, pattern: str | None = None) -> Entries:
        """Returns what lies in a folder, or what of it matches. After its limit the search finds nothing."""
        found = Entries([], [], [])
        self._left -= 1  # so that a pattern of many `**` ends, also in empty folders
        try:
            with folder_inside(self.root, *folder) as opened, os.scandir(opened) as entries:
                for entry in entries:
                    self._left -= 1
                    if self._left < 0:
                        break
                    if pattern is not None and not self._names.match(entry.name, pattern):
                        continue
                    if entry.is_dir(follow_symlinks=False):
                        found.folders.append(entry.name)
                    elif entry.is_file(follow_symlinks=False):
                        found.files.append(Match((*folder, entry.name), entry.stat(follow_symlinks=False)))
                    else:
                        found.others.append(entry.name)
        except OSError:  # it vanished, it is a link now, or the job closed it
            pass
        return found.sorted()

    def _expand(self, folder: Parts, wanted: Parts, *, names_folders: bool) -> Iterator[Match]:
        if not wanted or len(folder) > _DEEPEST or self._left < 0:
            return
        first, *rest = wanted
        if first == "**":
            yield from self._expand(folder, tuple(rest), names_folders=names_folders)
        here = self.entries(folder, "*" if first == "**" else first)
        if not rest and first != "**":
            yield from () if names_folders else here.files
            for name in here.folders:
                named = names_folders or _WILD.search(first) is None
                self.folders[*folder, name] = named or self.folders.get((*folder, name), False)
        for name in here.folders:
            inner = wanted if first == "**" else tuple(rest)
            yield from self._expand((*folder, name), inner, names_folders=names_folders)


class Names:
    """Compares names with parts of patterns. What it made of a part goes with it: `fnmatch` keeps 32,768 for ever."""

    def __init__(self) -> None:
        self._made: dict[str, Callable[[str], object]] = {}

    def match(self, name: str, part: str) -> bool:
        if name.startswith(".") and not part.startswith("."):
            return False
        made = self._made.get(part)
        if made is None:
            made = self._made[part] = re.compile(fnmatch.translate(part)).match
        return made(name) is not None

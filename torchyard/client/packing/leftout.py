"""Counts what of a folder is left out of a bundle, by the paths that a person would name."""

from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
import os
from pathlib import Path
import posixpath
import stat
from typing import Literal, TypeAlias

from torchyard.host import terminal

By: TypeAlias = Literal[".gitignore", ".torchyardignore", "never packed"]
"""What leaves a file out."""
MOST_COUNTED = 100_000
"""The most files that are looked at to say how many there are and how large they are."""
MOST_OF_ONE = 10_000
"""The most of them below one folder, so that the others are counted, too."""

_CACHES = frozenset({".cache", ".eggs", ".idea", ".ipynb_checkpoints", ".nox", ".tox", ".vscode", ".DS_Store"})
"""Names of what programs write for themselves: to say of each run that it stays at home helps nobody."""
_CACHE_ENDS = (".egg-info", ".pyc", ".swp", "~")
_MARKS = ("CACHEDIR.TAG", "pyvenv.cfg")
"""A folder with one of these files is a cache or an environment of Python."""


@dataclass(frozen=True)
class LeftOut:
    """Files that are left out for one reason, and the one file or the deepest folder that has them all.

    The path of a folder ends in a slash. `is_more`: there are more than these files and bytes, which were not counted.
    """

    path: str
    by: By
    files: int
    size: int
    is_more: bool = False

    def __str__(self) -> str:
        """Returns `data/ (2 files, 540.0 KiB)`."""
        if not self.files:
            return f"{self.path} (not counted)"
        count = f"{'more than ' if self.is_more else ''}{self.files} file{'' if self.files == 1 else 's'}"
        return f"{self.path} ({count}, {terminal.size(self.size)})"

    @property
    def name(self) -> str:
        """The path as an option names it."""
        return self.path.rstrip("/")


@dataclass
class _Group:
    names: list[str] = field(default_factory=list[str])
    files: int = 0
    size: int = 0
    is_more: bool = False


class Tally:
    """What is left out of a folder, while it is found."""

    def __init__(self, folder: Path, never: Collection[str]) -> None:
        self._folder = folder
        self._never = never
        self._groups: dict[tuple[str, By], _Group] = {}
        self._left = MOST_COUNTED

    def add(self, name: str, by: By) -> None:
        """Adds a file, or a folder with all that is below it. Its name ends in a slash, then."""
        if by == ".gitignore" and self._is_cache(name):
            return
        found = _Group([name])
        for size in _sizes(str(self._folder / name), self._never if by == ".gitignore" else ()):
            if not self._left or found.files == MOST_OF_ONE:
                found.is_more = True
                break
            self._left -= 1
            found.files += 1
            found.size += size
        if found.files or found.is_more:
            self._join(self._groups.setdefault((name.partition("/")[0], by), _Group()), found)

    def found(self) -> list[LeftOut]:
        """Returns what was added: one entry for each reason and each file or folder at the top."""
        return [
            LeftOut(_common(group.names), by, group.files, group.size, is_more=group.is_more)
            for (_, by), group in sorted(self._groups.items())
        ]

    def paths(self, most: int) -> list[str]:
        """Returns the paths that were added; where there are more than `most`, those of `found`, and the first few."""
        exact = [name for _, group in sorted(self._groups.items()) for name in group.names]
        return (exact if len(exact) <= most else [each.path for each in self.found()])[:most]

    def _join(self, group: _Group, found: _Group) -> None:
        group.names += found.names
        group.files += found.files
        group.size += found.size
        group.is_more |= found.is_more

    def _is_cache(self, name: str) -> bool:
        parts = name.rstrip("/").split("/")
        if any(part in _CACHES or part.endswith(_CACHE_ENDS) for part in parts):
            return True
        return name.endswith("/") and any((self._folder / name / mark).is_file() for mark in _MARKS)


def _common(names: list[str]) -> str:
    """Returns the one name, or the deepest folder that has all."""
    return names[0] if len(names) == 1 else f"{posixpath.commonpath(names)}/"


def _sizes(path: str, passed_over: Collection[str]) -> Iterator[int]:
    """Yields the bytes of the file, or of those below it if it is a folder. What cannot be read has none."""
    folders: list[str] = []
    try:
        status = os.lstat(path)
        if stat.S_ISDIR(status.st_mode):
            folders.append(path)
        else:
            yield status.st_size
    except OSError:
        return
    while folders:
        with suppress(OSError), os.scandir(folders.pop()) as entries:
            for entry in entries:
                if not entry.is_dir(follow_symlinks=False):
                    yield entry.stat(follow_symlinks=False).st_size
                elif entry.name not in passed_over:
                    folders.append(entry.path)

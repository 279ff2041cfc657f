"""Looks into the folders that a job writes, at a bounded number of entries. Follows no link."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
import os
from pathlib import Path
from typing import NamedTuple, TypeAlias

from torchyard.host.untrusted import folder_inside

Parts: TypeAlias = tuple[str, ...]
"""The names of a path."""
Inode: TypeAlias = tuple[int, int]

_MOST_NAMED, _DEEPEST_NAMED = 50_000, 13
"""Entries and levels of folders that one search for names looks at."""


@dataclass(frozen=True)
class Match:
    """A regular file. `parts` is its path below the folder that was searched from."""

    parts: Parts
    status: os.stat_result


class Entries(NamedTuple):
    """What lies in a folder, sorted: its files, and the names of its folders and of all else."""

    files: list[Match]
    folders: list[str]
    others: list[str]


class Looks:
    """Looks below `root`, at `most` entries in all. After that it finds nothing."""

    def __init__(self, root: Path, *, most: int) -> None:
        self.root = root
        self._left = most

    @property
    def is_cut(self) -> bool:
        """Whether it has not looked at all."""
        return self._left < 0

    def entries(self, folder: Parts, wanted: Callable[[os.DirEntry[str]], bool] = lambda _: True) -> Entries:
        """Returns what lies in a folder, or what of it is wanted."""
        listed = Entries([], [], [])
        self._left -= 1  # so that a pattern of many `**` ends, also in empty folders
        if self.is_cut:
            return listed
        try:
            with folder_inside(self.root, *folder) as opened, os.scandir(opened) as entries:
                for entry in entries:
                    self._left -= 1
                    if self._left < 0:
                        break
                    if not wanted(entry):
                        continue
                    if entry.is_dir(follow_symlinks=False):
                        listed.folders.append(entry.name)
                    elif entry.is_file(follow_symlinks=False):
                        listed.files.append(Match((*folder, entry.name), entry.stat(follow_symlinks=False)))
                    else:
                        listed.others.append(entry.name)
        except OSError:  # it vanished, it is a link now, or the job closed it
            pass
        return Entries(
            sorted(listed.files, key=lambda match: match.parts), sorted(listed.folders), sorted(listed.others)
        )

    def below(
        self,
        *tops: Parts,
        wanted: Callable[[os.DirEntry[str]], bool] = lambda _: True,
        enters: Callable[[Parts], bool] = lambda _: True,
        deepest: int | None = None,
    ) -> Iterator[tuple[Parts, Entries]]:
        """Yields these folders and those below them with what lies in each, higher ones first.

        `enters`: whether it looks into a folder. `deepest`: how many levels below the first ones.
        """
        level, depth = [*tops], 0
        while level and (deepest is None or depth <= deepest):
            inner: list[Parts] = []
            for folder in level:
                here = self.entries(folder, wanted)
                yield folder, here
                inner += [path for name in here.folders if enters(path := (*folder, name))]
            level, depth = inner, depth + 1


def names_of(root: Path, folders: Iterable[Parts], wanted: Iterable[Inode]) -> Mapping[Inode, list[Parts]]:
    """Returns the names of the `wanted` files below `folders` in `root`, as paths in `root`.

    `root` is a folder that no job can replace. After 50,000 entries it has not found all.
    """
    by_inode: dict[Inode, list[Parts]] = {inode: [] for inode in wanted}
    for _, here in Looks(root, most=_MOST_NAMED).below(*folders, deepest=_DEEPEST_NAMED) if by_inode else ():
        for match in here.files:
            if (names := by_inode.get((match.status.st_dev, match.status.st_ino))) is not None:
                names.append(match.parts)
    return by_inode

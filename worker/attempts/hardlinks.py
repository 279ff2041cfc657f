"""Finds the names of files that have several, below the folders that a job writes."""

from collections.abc import Iterable, Mapping
import os
from pathlib import Path

from torchyard.host.untrusted import folder_inside
from worker.attempts.matching import Parts

_DEEPEST = 12
_MOST_ENTRIES = 50_000
"""Entries of folders that one search looks at."""

Inode = tuple[int, int]


def names_of(roots: Iterable[tuple[Path, Parts]], wanted: Iterable[Inode]) -> Mapping[Inode, list[Parts]]:
    """Returns the names of the `wanted` files, as paths below the folder in which each was found.

    It looks below the folders `roots`, each given as a folder that no job can replace and a path in it, and once into
    those that lie in others. Follows no link. After 50,000 entries it has not found all.
    """
    found: dict[Inode, list[Parts]] = {inode: [] for inode in wanted}
    left = _MOST_ENTRIES
    waiting = _outermost(list(roots)) if found else []
    while waiting and left > 0:
        root, folder = waiting.pop()
        left -= 1
        try:
            with folder_inside(root, *folder) as opened, os.scandir(opened) as entries:
                for entry in entries:
                    left -= 1
                    if left < 0:
                        break
                    path = (*folder, entry.name)
                    if entry.is_dir(follow_symlinks=False):
                        if len(path) <= _DEEPEST:
                            waiting.append((root, path))
                    elif entry.is_file(follow_symlinks=False):
                        status = entry.stat(follow_symlinks=False)
                        names = found.get((status.st_dev, status.st_ino))
                        if names is not None:
                            names.append(path)
        except OSError:  # it vanished, it is a link now, or the job closed it
            continue
    return found


def _outermost(roots: list[tuple[Path, Parts]]) -> list[tuple[Path, Parts]]:
    return [
        (root, parts)
        for root, parts in roots
        if not any(root == other and parts[: len(above)] == above and parts != above for other, above in roots)
    ]

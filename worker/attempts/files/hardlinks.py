"""Finds the names of files that have several, below the folders that a job writes."""

from collections.abc import Iterable, Mapping
import os
from pathlib import Path

from torchyard.host.untrusted import folder_inside
from worker.attempts.files.matching import Parts

_DEEPEST = 14
_MOST_ENTRIES = 50_000
"""Entries of folders that one search looks at."""

Inode = tuple[int, int]


def names_of(root: Path, folders: Iterable[Parts], wanted: Iterable[Inode]) -> Mapping[Inode, list[Parts]]:
    """Returns the names of the `wanted` files below `folders` in `root`, as paths in `root`.

    `root` is a folder that no job can replace. Follows no link. After 50,000 entries it has not found all.
    """
    found: dict[Inode, list[Parts]] = {inode: [] for inode in wanted}
    left = _MOST_ENTRIES
    waiting = list(folders) if found else []
    while waiting and left > 0:
        folder = waiting.pop()
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
                            waiting.append(path)
                    elif entry.is_file(follow_symlinks=False):
                        status = entry.stat(follow_symlinks=False)
                        names = found.get((status.st_dev, status.st_ino))
                        if names is not None:
                            names.append(path)
        except OSError:  # it vanished, it is a link now, or the job closed it
            continue
    return found

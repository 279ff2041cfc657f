"""Finds the event files below a folder that a job writes. Follows no link."""

import os
from pathlib import Path
from typing import TypeAlias

from torchyard.host.untrusted import folder_inside

Parts: TypeAlias = tuple[str, ...]
"""The path of a file below the job's folder."""

_DEEPEST = 12
_MOST_ENTRIES = 50_000
_OWN = frozenset({"ranks", "errors", "stacks", "collectives", "stop", "logs", "torchrun", "checkpoints"})
"""Folders at the top whose content the service or the rank's start defines."""


def find(job: Path) -> list[Parts]:
    """Returns the event files below `job`, those of higher folders first. Looks at 50,000 entries at most."""
    found: list[Parts] = []
    level: list[Parts] = [()]
    left = _MOST_ENTRIES
    for _ in range(_DEEPEST):
        below: list[Parts] = []
        for folder in level:
            names, folders, looked = _look(job, folder, left)
            found += [(*folder, name) for name in names]
            below += [(*folder, name) for name in folders]
            left -= looked
            if left <= 0:
                return found
        level = below
    return found


def _look(job: Path, folder: Parts, most: int) -> tuple[list[str], list[str], int]:
    """Returns the sorted names of a folder's event files and of its folders, and how many entries were looked at."""
    names: list[str] = []
    folders: list[str] = []
    looked = 0
    try:
        with folder_inside(job, *folder) as opened, os.scandir(opened) as entries:
            for entry in entries:
                looked += 1
                if looked > most:
                    break
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.name)
                elif ".tfevents." in entry.name:
                    names.append(entry.name)
    except OSError:  # it vanished, it is a link now, or the job closed it
        return [], [], looked
    return sorted(names), sorted(name for name in folders if folder or name not in _OWN), looked + 1

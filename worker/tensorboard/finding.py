"""Finds the event files below the folders that a job writes. Follows no link."""

from collections.abc import Collection
import os
from pathlib import Path
from typing import TypeAlias

from torchyard.contract.rundir import WORK
from torchyard.host.untrusted import folder_inside

Parts: TypeAlias = tuple[str, ...]
"""The path of a file as it is named: below `job` of the run directory, or below `work`, which it begins with."""

_DEEPEST = 12
_MOST_ENTRIES = 50_000
OWN = frozenset({"ranks", "errors", "stacks", "collectives", "stop", "logs", "torchrun", "checkpoints"})
"""Folders at the top whose content the service or the rank's start defines."""


def located(parts: Parts, job: Parts) -> Parts:
    """Returns the path below the root of a file that `find` has named."""
    return parts if job and parts[:1] == (WORK,) else (*job, *parts)


def find(root: Path, job: Parts = (), *, skipped: Collection[str] = OWN) -> list[Parts]:
    """Returns the event files below `root`, those of higher folders first. Looks at 50,000 entries at most.

    `job`: the path of what the attempt's program may write below `root`, beside the job's working folder. Without it
    that is all of `root`. `skipped`: the names of its folders that are not looked at.
    """
    found: list[Parts] = []
    level: list[Parts] = [(WORK,), ()] if job else [()]
    skipped = {*skipped, WORK} if job else skipped
    left = _MOST_ENTRIES
    for _ in range(_DEEPEST):
        below: list[Parts] = []
        for folder in level:
            names, folders, looked = _look(root, located(folder, job), left)
            folders = [name for name in folders if folder or name not in skipped]
            found += [(*folder, name) for name in names]
            below += [(*folder, name) for name in folders]
            left -= looked
            if left <= 0:
                return found
        level = below
    return found


def _look(root: Path, folder: Parts, most: int) -> tuple[list[str], list[str], int]:
    """Returns the sorted names of a folder's event files and of its folders, and how many entries were looked at."""
    names: list[str] = []
    folders: list[str] = []
    looked = 0
    try:
        with folder_inside(root, *folder) as opened, os.scandir(opened) as entries:
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
    return sorted(names), sorted(folders), looked + 1

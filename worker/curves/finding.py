"""Finds the files with curves below the folders that a job writes. Follows no link."""

from collections.abc import Collection
import os
from pathlib import Path

from torchyard.contract.attempts.rundir import WORK
from worker.curves import kinds
from worker.host.looks import Looks, Parts

_DEEPEST = 11
_MOST_ENTRIES = 50_000
OWN = frozenset({"ranks", "errors", "stacks", "collectives", "stop", "logs", "torchrun", "checkpoints"})
"""Folders at the top whose content the service or the rank's start defines."""


def located(parts: Parts, job: Parts) -> Parts:
    """Returns the path below the root of a file that `find` has named."""
    return parts if job and parts[:1] == (WORK,) else (*job, *parts)


def find(root: Path, job: Parts = (), *, skipped: Collection[str] = OWN) -> list[Parts]:
    """Returns the files with curves below `root`, those of higher folders first. Looks at 50,000 entries at most.

    `job`: the path of what the attempt's program may write below `root`, beside the job's working folder. Without it
    that is all of `root`. `skipped`: the names of its folders that are not looked at.
    """
    looks = Looks(root, most=_MOST_ENTRIES)
    skipped = {*skipped, WORK} if job else skipped
    files: list[Parts] = []
    level: list[tuple[Parts, bool]] = [(top, False) for top in ([(WORK,), job] if job else [()])]
    for _ in range(_DEEPEST + 1):
        inner: list[tuple[Parts, bool]] = []
        for folder, is_metrics in level:
            here = looks.entries(folder, *(() if is_metrics else (_is_wanted,)))
            named = folder if folder[:1] == (WORK,) else folder[len(job) :]
            names = {*(match.parts[-1] for match in here.files), *here.others}
            is_run = kinds.RUN in names and not is_metrics
            files += [(*named, name) for name in sorted(names) if is_metrics or name != kinds.RUN]
            entered = (name for name in here.folders if folder != job or name not in skipped)
            inner += [((*folder, name), is_metrics or (is_run and name == kinds.METRICS)) for name in entered]
        level = inner
    return files


def _is_wanted(entry: os.DirEntry[str]) -> bool:
    return kinds.is_wanted(entry.name) or entry.is_dir(follow_symlinks=False)

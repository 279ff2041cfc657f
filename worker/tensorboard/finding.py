"""Finds the event files below the folders that a job writes. Follows no link."""

from collections.abc import Collection
from pathlib import Path

from torchyard.contract.rundir import WORK
from worker.host.looks import Looks, Parts

_DEEPEST = 11
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
    tops = [(WORK,), job] if job else [()]
    looks = Looks(root, most=_MOST_ENTRIES)
    skipped = {*skipped, WORK} if job else skipped
    found: list[Parts] = []
    for folder, here in looks.below(
        *tops,
        wanted=lambda entry: ".tfevents." in entry.name or entry.is_dir(follow_symlinks=False),
        enters=lambda path: path[:-1] != job or path[-1] not in skipped,
        deepest=_DEEPEST,
    ):
        named = folder if folder[:1] == (WORK,) else folder[len(job) :]
        found += [(*named, name) for name in sorted([*(match.parts[-1] for match in here.files), *here.others])]
    return found

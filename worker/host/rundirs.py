"""The run directories on this host: their names, their files, and moving one aside."""

from collections.abc import Callable, Collection
import contextlib
from dataclasses import dataclass
import logging
import os
from pathlib import Path
import re
import stat

from store.ids import is_id
from torchyard.contract.attempts.rundir import WORK, RunDir
from torchyard.contract.wire.codec import Record
from torchyard.host.untrusted import read_untrusted
from worker.host.untrusted import folders_inside, remove_inside, walk_status

STALE_PREFIX = ".stale."
_BLOCK = 512
"""Bytes of a block of `st_blocks`."""
_NUMBER = re.compile(r"[1-9][0-9]{0,8}")
_COPIES_PER_ATTEMPT = 1000
"""Copies of checkpoints that one call considers in each run directory."""
_MOST_ENTRIES = 50_000
"""Entries of the folder of checkpoints that one call looks at."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class _Claimed(Record):
    """What the plan of every engine says."""

    claimed_at: int


def is_stale(run: RunDir, *, claimed_at: int) -> bool:
    """Returns whether the directory belongs to another attempt with the same number.

    Its attempt was in the database before an older copy of the database was restored.
    """
    plan = read_untrusted(run.launch, _Claimed)
    return plan is not None and plan.claimed_at != claimed_at


def started_ns(run: RunDir) -> int:
    """Returns when the attempt was prepared, in nanoseconds since the epoch by this host's clock.

    Returns 0 if nobody has noted it.
    """
    try:
        return run.brought.stat().st_mtime_ns
    except OSError:
        return 0


def came_ns(run: RunDir) -> int:
    """Returns when the job's code was brought to this host, else what `started_ns` returns."""
    try:
        return run.came.stat().st_mtime_ns
    except OSError:
        return started_ns(run)


def began_ns(run: RunDir) -> int | None:
    """Returns when rank 0 came up, after the packages were installed; None if it has not."""
    try:
        return os.lstat(run.ranks / "0.json").st_mtime_ns
    except OSError:
        return None


def move_aside(run: RunDir) -> None:
    """Renames the directory, so that an attempt with its number can be prepared. Raises OSError.

    The sweep removes it after the same time as an orphan.
    """
    aside = run.root.with_name(STALE_PREFIX + run.root.name)
    remove_inside(aside.parent, aside.name)
    run.root.rename(aside)


def by_job(runs: Path) -> dict[str, list[str]]:
    """Returns the attempt numbers that have a run directory, by job id. Skips what this service did not make."""
    return {name: attempts_in(runs / name) for name in folders(runs.parent, runs.name) if is_id(name, "job")}


def attempts_in(folder: Path) -> list[str]:
    """Returns the attempt numbers that have a run directory in a job's folder."""
    return [name for name in folders(folder.parent, folder.name) if _NUMBER.fullmatch(name)]


def folders(root: Path, *parts: str) -> list[str]:
    """As `folders_inside`, but returns none if the folder cannot be read."""
    with contextlib.suppress(OSError):
        return folders_inside(root, *parts)
    return []


def remove_checkpoint_copies(
    folder: Path, removed_among: Callable[[int, Collection[str]], Collection[str]], *, attempts: int
) -> None:
    """Removes the copies of removed checkpoints from the run directories of a job's first `attempts` attempts.

    `folder` contains the run directories. `removed_among` is that of `AttemptRecords`; what it raises is passed on.
    """
    for attempt in range(1, attempts + 1):
        try:
            # The names sort by age, oldest first. The database never listed a name that is not ASCII.
            run = RunDir(folder / str(attempt))
            copies = checkpoints_path(run)
            folders = folders_inside(run.root, *copies, most=_MOST_ENTRIES)
            names = [name for name in folders if name.isascii()]
        except OSError as error:
            logger.warning("%s: cannot list the copies of removed checkpoints: %s", folder.name, error)
            continue
        for name in removed_among(attempt, names[:_COPIES_PER_ATTEMPT]) if names else ():
            if not remove_inside(folder, run.root.name, *copies, name):
                logger.warning("%s: cannot delete the copy of checkpoint %s", folder.name, name)


def checkpoints_path(run: RunDir) -> tuple[str, ...]:
    """Returns the path of the checkpoints relative to the run directory."""
    return run.checkpoints.relative_to(run.root).parts


def job_path(run: RunDir) -> tuple[str, ...]:
    """Returns the path of what the attempt's program may write, relative to the folder of the job."""
    return run.root.name, run.job.name


def own_path(parts: tuple[str, ...]) -> tuple[str, ...]:
    """Returns a path below a job's folder without what names the attempt. That of the working folder stays as it is."""
    return parts if parts[:1] == (WORK,) else parts[2:]


def size(folder: Path, *, unlock: bool) -> int:
    """Returns the bytes on disk of a folder and of all below it. A file with several names counts once.

    Makes unreadable folders readable for their owner if `unlock`.
    """
    total = 0
    known: set[tuple[int, int]] = set()
    for status in walk_status(folder, unlock=unlock):
        if status.st_nlink > 1 and not stat.S_ISDIR(status.st_mode):
            file = (status.st_dev, status.st_ino)
            if file in known:
                continue
            known.add(file)
        total += status.st_blocks * _BLOCK
    return total

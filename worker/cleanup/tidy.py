"""What is left on this host's disks of deleted jobs and removed checkpoints, and of copies that were cut off."""

from collections.abc import Callable, Collection
import logging
from pathlib import Path

from store.commands import cleanup
from store.queries import run_dirs
from store.store import Store
from torchyard.contract.rundir import RunDir
from worker.untrusted import folders_inside, remove_inside

_ASKED_AT_ONCE = 1000
_REMOVED_AT_ONCE = 50
_COPIES_LOOKED_AT = 1000

logger = logging.getLogger(__name__)


def remove_runs(runs: Path, store: Store, *, go_on: Callable[[], bool]) -> None:
    """Removes the run directories of deleted jobs, while `go_on` says so. Raises Unavailable."""
    there = [path.name for path in runs.glob("job_*")]
    for first in range(0, len(there), _ASKED_AT_ONCE):
        with store.read() as session:
            deleted = run_dirs.deleted_among(session, there[first : first + _ASKED_AT_ONCE])
        for job_id in deleted:
            if not go_on():
                return
            if not remove_inside(runs.resolve(), job_id):
                logger.warning("%s: what it left in %s cannot be removed", job_id, runs)


def remove_copies(
    folder: Path, removed_among: Callable[[int, Collection[str]], Collection[str]], *, attempts: int
) -> None:
    """Removes what a job's first `attempts` attempts still have on this disk of its checkpoints that were removed.

    `folder` has their run directories; `removed_among` is that of `Records`, and so is what it raises.
    """
    for attempt in range(1, attempts + 1):
        try:
            # By their names the oldest come first. One that no database stores was never listed.
            run = RunDir.found(folder / str(attempt))
            copies = run.checkpoints.relative_to(run.root).parts
            found = [name for name in folders_inside(run.root, *copies) if name.isascii()]
        except OSError as error:
            logger.warning("%s: cannot look for copies of removed checkpoints: %s", folder.name, error)
            continue
        for name in removed_among(attempt, found[:_COPIES_LOOKED_AT]) if found else ():
            if not remove_inside(folder, run.root.name, *copies, name):
                logger.warning("%s: the copy of checkpoint %s cannot be removed", folder.name, name)


def remove_blobs(store: Store) -> None:
    """Removes the blobs that nothing refers to any more, and what was left of copies a day ago. Raises Unavailable."""
    try:
        removed = cleanup.collect_garbage(store, limit=_REMOVED_AT_ONCE)
        store.blobs.remove_abandoned()
    except OSError as error:
        logger.warning("cannot remove blobs: %s", error)
        return
    if removed:
        logger.info("%d blobs that nothing refers to are removed", removed)

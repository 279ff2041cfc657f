"""Removes what deleted jobs, removed checkpoints and unfinished copies left on this host's disks."""

from collections.abc import Callable, Collection
from datetime import timedelta
import logging
from pathlib import Path

from store.commands import bundles, cleanup
from store.ids import is_id
from store.queries import run_dirs
from store.store import Store
from torchyard.contract.rundir import RunDir
from worker.host.untrusted import folders_inside, remove_inside

_JOBS_PER_QUERY = 1000
_BLOBS_PER_CALL = 50
_COPIES_PER_ATTEMPT = 1000
"""Copies of checkpoints that one call considers in each run directory."""
_MOST_ENTRIES = 50_000
"""Entries of the folder of checkpoints that one call looks at."""

logger = logging.getLogger(__name__)


def remove_deleted_runs(runs: Path, store: Store, *, may_continue: Callable[[], bool]) -> None:
    """Removes the run directories of deleted jobs until `may_continue` returns False. Raises Unavailable."""
    job_ids = [path.name for path in runs.glob("job_*") if is_id(path.name, "job")]
    for first in range(0, len(job_ids), _JOBS_PER_QUERY):
        with store.read() as session:
            deleted = run_dirs.deleted_among(session, job_ids[first : first + _JOBS_PER_QUERY])
        for job_id in deleted:
            if not may_continue():
                return
            if not remove_inside(runs.resolve(), job_id, may_continue=may_continue) and may_continue():
                logger.warning("%s: its run directories in %s cannot be removed", job_id, runs)


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
            copies = run.checkpoints.relative_to(run.root).parts
            folders = folders_inside(run.root, *copies, most=_MOST_ENTRIES)
            found = [name for name in folders if name.isascii()]
        except OSError as error:
            logger.warning("%s: the copies of removed checkpoints cannot be listed: %s", folder.name, error)
            continue
        for name in removed_among(attempt, found[:_COPIES_PER_ATTEMPT]) if found else ():
            if not remove_inside(folder, run.root.name, *copies, name):
                logger.warning("%s: the copy of checkpoint %s cannot be removed", folder.name, name)


def remove_unreferenced_blobs(store: Store) -> None:
    """Removes blobs that nothing refers to, and the remains of copies that are a day old. Raises Unavailable."""
    try:
        removed = cleanup.collect_garbage(store, limit=_BLOBS_PER_CALL)
        store.blobs.remove_abandoned()
    except OSError as error:
        logger.warning("cannot remove blobs: %s", error)
        return
    if removed:
        logger.info("%d unreferenced blobs are removed", removed)


def remove_unused_bundles(store: Store, *, age: timedelta | None) -> None:
    """Removes bundles that nobody used for `age` (None: none), and abandoned uploads. Raises Unavailable."""
    try:
        removed = bundles.remove_unused(store, age=age)
    except OSError as error:
        logger.warning("cannot remove abandoned uploads: %s", error)
        return
    if removed:
        logger.info("%d bundles are removed: nobody used them, and no job names them", removed)

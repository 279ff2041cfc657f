"""Removes what deleted jobs, removed checkpoints and unfinished copies left on this host's disks."""

from collections.abc import Callable
from datetime import timedelta
import logging
from pathlib import Path

from store import housekeeping
from store.attempts import removal
from store.blobs import uploads
from store.bundles import library as bundles
from store.ids import is_id
from store.store import Store
from torchyard.host.failpoints import failpoint
from worker.host.untrusted import remove_inside

_JOBS_PER_QUERY = 1000
_BLOBS_PER_CALL = 50

logger = logging.getLogger(__name__)


def remove_deleted_runs(runs: Path, store: Store, *, after: str = "", may_continue: Callable[[], bool]) -> str:
    """Removes the run directories of deleted jobs until `may_continue` returns False. Raises Unavailable.

    Returns the id of the last job that it has begun with. With it as `after` it begins with the next one: one job that
    has left much holds up no others.
    """
    failpoint("disk.removal")
    job_ids = sorted(path.name for path in runs.glob("job_*") if is_id(path.name, "job"))
    job_ids = [*(each for each in job_ids if each > after), *(each for each in job_ids if each <= after)]
    for first in range(0, len(job_ids), _JOBS_PER_QUERY):
        with store.read() as session:
            deleted = {*removal.list_deleted_among(session, job_ids[first : first + _JOBS_PER_QUERY])}
        for job_id in job_ids[first : first + _JOBS_PER_QUERY]:
            if job_id not in deleted:
                continue
            if not may_continue():
                return after
            after = job_id
            if not remove_inside(runs.resolve(), job_id, may_continue=may_continue) and may_continue():
                logger.warning("%s: its run directories in %s cannot be removed", job_id, runs)
    return after


def remove_unreferenced_blobs(store: Store) -> None:
    """Removes blobs that nothing refers to, and the remains of copies that are a day old. Raises Unavailable."""
    try:
        removed = housekeeping.collect_garbage(store, limit=_BLOBS_PER_CALL)
        store.blobs.remove_abandoned()
        uploads.remove_abandoned(store.blobs)
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

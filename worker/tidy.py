"""What is left on this host's disks of jobs that were deleted, and of copies that were cut off."""

from collections.abc import Callable
import logging
from pathlib import Path
import shutil

from store import deletion
from store.blobs import Blobs
from store.database import Database

_ASKED_AT_ONCE = 1000
_REMOVED_AT_ONCE = 50

logger = logging.getLogger(__name__)


def remove_runs(runs: Path, database: Database, *, go_on: Callable[[], bool]) -> None:
    """Removes the run directories of deleted jobs, while `go_on` says so. Raises Unavailable."""
    there = [path.name for path in runs.glob("job_*")]
    for first in range(0, len(there), _ASKED_AT_ONCE):
        with database.read() as session:
            deleted = deletion.deleted_among(session, there[first : first + _ASKED_AT_ONCE])
        for job_id in deleted:
            if not go_on():
                return
            shutil.rmtree(runs / job_id, ignore_errors=True)
            if (runs / job_id).exists():
                logger.warning("%s: what it left in %s cannot be removed", job_id, runs)


def remove_blobs(blobs: Blobs, database: Database) -> None:
    """Removes the blobs that deleted jobs left, and what was left of copies a day ago. Raises Unavailable."""
    try:
        removed = deletion.collect(database, blobs, limit=_REMOVED_AT_ONCE)
        blobs.remove_abandoned()
    except OSError as error:
        logger.warning("cannot remove what deleted jobs left: %s", error)
        return
    if removed:
        logger.info("%d blobs of deleted jobs are removed", removed)

"""Removes what deleted jobs have left on this host's disks."""

from collections.abc import Callable
import logging
from pathlib import Path

from store.ids import is_id
from store.worker.protocol import Folders
from torchyard.host.failpoints import failpoint
from worker.host.untrusted import remove_inside

_JOBS_PER_QUERY = 1000

logger = logging.getLogger(__name__)


def remove_deleted_runs(runs: Path, asked: Folders, *, after: str = "", may_continue: Callable[[], bool]) -> str:
    """Removes the run directories of deleted jobs until `may_continue` returns False. Raises Unavailable.

    Returns the id of the last job that it has begun with. With it as `after` it begins with the next one: one job that
    has left much holds up no others.
    """
    failpoint("disk.removal")
    job_ids = sorted(path.name for path in runs.glob("job_*") if is_id(path.name, "job"))
    job_ids = [*(each for each in job_ids if each > after), *(each for each in job_ids if each <= after)]
    for first in range(0, len(job_ids), _JOBS_PER_QUERY):
        deleted = {*asked.list_deleted(job_ids[first : first + _JOBS_PER_QUERY])}
        for job_id in job_ids[first : first + _JOBS_PER_QUERY]:
            if job_id not in deleted:
                continue
            if not may_continue():
                return after
            after = job_id
            if not remove_inside(runs.resolve(), job_id, may_continue=may_continue) and may_continue():
                logger.warning("%s: cannot delete its run directories in %s", job_id, runs)
    return after

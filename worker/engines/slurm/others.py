"""Finds the jobs of a service and pool that belong to no attempt which is open."""

from collections.abc import Collection, Mapping
import logging
import time

from worker.engines.slurm.listing import Listing
from worker.engines.slurm.names import Names
from worker.host.attempt_key import AttemptKey

_AGAIN_S = 30.0
"""One that was found is found again after so long."""

logger = logging.getLogger(__name__)


class OtherJobs:
    """`names`: those that the service gives for the pool. Jobs of others are none of its business."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self._cancelled_at: dict[str, float] = {}
        """When each was last cancelled, by name."""

    def to_cancel(
        self, listing: Listing, *, keep: Collection[AttemptKey], names: Mapping[AttemptKey, str]
    ) -> list[str]:
        """Returns the names of the jobs to cancel. `keep`: the open attempts. `names`: those of their jobs, if known.

        The listing is older than `keep`: a job that it has was submitted for an attempt that was open before.
        """
        now = time.monotonic()
        self._cancelled_at = {name: at for name, at in self._cancelled_at.items() if now - at < _AGAIN_S}
        others = [
            name
            for name, job in listing.jobs.items()
            if not job.ended and name not in self._cancelled_at and self._is_other(name, keep, names)
        ]
        for name in others:
            logger.warning("cancelled the Slurm job %s, which belongs to no open attempt", name)
            self._cancelled_at[name] = now
        return others

    def _is_other(self, name: str, keep: Collection[AttemptKey], names: Mapping[AttemptKey, str]) -> bool:
        key = self._names.key_of(name)
        if key is None:
            return False
        return key not in keep or names.get(key, name) != name

"""Renews the leases of this worker's attempts, and rescues the jobs of workers whose leases have expired."""

from collections.abc import Callable
import logging

from store.attempts import reads as attempts
from store.attempts.facts import LEASE, Claim
from store.cluster import workers_writes as workers
from store.store import Store
from worker.attempts.runners import AttemptRunners

_FRESH_S = LEASE.total_seconds() / 2

logger = logging.getLogger(__name__)


class Leases:
    """Every method raises Unavailable. One thread calls `renew`, another one the others."""

    def __init__(
        self,
        store: Store,
        runners: AttemptRunners,
        *,
        worker_id: str,
        clock: Callable[[], float],
        holder: str | None = None,
    ) -> None:
        """`holder`: the daemon of a pool, as in `worker.pools.Pool`."""
        self._holder = holder
        self._store = store
        self._runners = runners
        self._worker_id = worker_id
        self._clock = clock
        self._available_since: float | None = None
        """When the database answered for the first time after the last outage."""
        self._renewed_at = clock()

    @property
    def fresh(self) -> bool:
        """Whether nobody can have rescued an attempt of this worker since the last renewal.

        Then a device that looks free is free.
        """
        return self._clock() - self._renewed_at < _FRESH_S

    def renew(self) -> None:
        """Renews all leases. An attempt that belongs to this worker no longer is abandoned."""
        began = self._clock()
        attempt_ids = self._runners.attempt_ids()
        if attempt_ids:
            self._runners.abandon({*attempt_ids} - self._renew(attempt_ids))
        self._renewed_at = began

    def confirm(self) -> bool:
        """Returns whether every running attempt still belongs to this worker. Abandons those that do not."""
        attempt_ids = set(self._runners.attempt_ids())
        if not attempt_ids:
            return True
        ours = {claim.attempt_id for claim in self._owned()}
        self._runners.abandon(attempt_ids - ours)
        return attempt_ids <= ours | self._runners.done_ids()

    def continue_lost(self) -> None:
        """In a pool, does what `end_others` does: no other worker rescues an attempt whose runner has failed."""
        if self._holder is not None:
            self.end_others()

    def end_others(self) -> bool:
        """Has the engine end what belongs to no open attempt.

        In a pool, attempts whose runner has failed are continued first: they are open. Returns False where that waits
        for the next renewal.
        """
        if self._holder is not None:
            if not self.fresh:
                return False
            self._runners.adopt(self._owned())
        self._runners.end_others()
        return True

    def rescue_expired(self) -> int:
        """Ends the attempts whose lease has expired. Returns their number.

        After an outage of the database, all leases look expired. So nobody is rescued until the database has answered
        for the time of one lease.
        """
        expired = attempts.expired(self._store)
        self._available_since = self._available_since or self._clock()
        if self._clock() - self._available_since <= LEASE.total_seconds():
            return 0
        return sum(self._rescue(claim) for claim in expired if claim not in self._runners)

    def database_was_away(self) -> None:
        self._available_since = None

    def _renew(self, attempt_ids: list[int]) -> set[int]:
        return workers.renew(self._store, self._worker_id, attempt_ids, holder=self._holder)

    def _owned(self) -> list[Claim]:
        return attempts.owned(self._store, self._worker_id, holder=self._holder)

    def _rescue(self, claim: Claim) -> bool:
        rescued = workers.rescue(self._store, claim)
        if rescued:
            logger.warning("%s: attempt %d was rescued: its lease had expired", claim.job_id, claim.number)
        return rescued

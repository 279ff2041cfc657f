"""Leases: this worker renews its own, and rescues the jobs of workers whose leases have expired."""

from collections.abc import Callable
import logging

from store.commands import workers
from store.rows import attempts
from store.rows.attempts import LEASE, Claim
from store.store import Store
from worker.attempts.roster import Roster

_FRESH_S = LEASE.total_seconds() / 2

logger = logging.getLogger(__name__)


class Leases:
    """Every method raises Unavailable."""

    def __init__(self, store: Store, roster: Roster, *, worker_id: str, clock: Callable[[], float]) -> None:
        self._store = store
        self._roster = roster
        self._worker_id = worker_id
        self._clock = clock
        self._answers_since: float | None = None
        self._renewed_at = clock()

    @property
    def fresh(self) -> bool:
        """Whether nobody can have rescued an attempt of this worker since the last renewal: what looks free is free."""
        return self._clock() - self._renewed_at < _FRESH_S

    def renew(self) -> None:
        """What is not this worker's any more is abandoned."""
        began = self._clock()
        attempt_ids = self._roster.attempt_ids()
        if attempt_ids:
            self._roster.keep_only(workers.renew(self._store, self._worker_id, attempt_ids))
        self._renewed_at = began

    def look(self) -> bool:
        """Whether every attempt in hand is still this worker's. One that is not is abandoned."""
        attempt_ids = set(self._roster.attempt_ids())
        if not attempt_ids:
            return True
        with self._store.read() as session:
            ours = {claim.attempt_id for claim in attempts.open_claims(session, self._worker_id)}
        self._roster.keep_only(ours)
        return attempt_ids <= ours | self._roster.done()

    def rescue_expired(self) -> int:
        """Ends the attempts whose lease has expired. How many.

        A database that was away for everybody must not look like workers that are gone: nobody is rescued until it has
        answered for one lease.
        """
        with self._store.read() as session:
            late = attempts.expired_claims(session)
        self._answers_since = self._answers_since or self._clock()
        if self._clock() - self._answers_since <= LEASE.total_seconds():
            return 0
        return sum(self._rescue(claim) for claim in late if claim not in self._roster)

    def database_was_away(self) -> None:
        self._answers_since = None

    def _rescue(self, claim: Claim) -> bool:
        rescued = workers.rescue(self._store, claim)
        if rescued:
            logger.warning("%s: attempt %d was rescued: its lease had expired", claim.job_id, claim.number)
        return rescued

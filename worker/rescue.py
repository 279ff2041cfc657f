"""Ends the attempts of workers whose leases have expired, so that their jobs go on elsewhere."""

from collections.abc import Callable, Container
import logging

from store.attempts import end, lease
from store.attempts.facts import LEASE, Claim
from store.queue import away
from store.store import Store

logger = logging.getLogger(__name__)


class Rescue:
    """A duty for the whole cluster. `own`: the attempts that this worker carries out, which are left to it."""

    def __init__(self, store: Store, own: Container[Claim], *, clock: Callable[[], float]) -> None:
        self._store = store
        self._own = own
        self._clock = clock
        self._available_since: float | None = None
        """When the database answered for the first time after the last outage."""

    def rescue_expired(self) -> int:
        """Ends the attempts whose lease has expired. Returns their number. Raises Unavailable.

        That of a remote worker which does not answer stays open: `store.queue.away`.

        After an outage of the database, all leases look expired. So nobody is rescued until the database has answered
        for the time of one lease.
        """
        with self._store.read() as session:
            expired, unnoted = lease.list_expired(session), away.list_unnoted(session)
        self._available_since = self._available_since or self._clock()
        if self._clock() - self._available_since <= LEASE.total_seconds():
            return 0
        for claim in unnoted:
            with self._store.write("reason") as session:
                away.note(session, claim)
        return sum(self._rescue(claim) for claim in expired if claim not in self._own)

    def database_was_away(self) -> None:
        """Notes an outage. Any thread may call it."""
        self._available_since = None

    def _rescue(self, claim: Claim) -> bool:
        with self._store.write("rescue") as session:
            rescued = end.rescue(session, claim)
        if rescued:
            logger.warning("%s: attempt %d was rescued: its lease had expired", claim.job_id, claim.number)
        return rescued

"""Renews the leases of this worker's attempts."""

from collections.abc import Callable

from store.worker.protocol import Verbs
from store.worker.records import LEASE
from worker.attempts.runners import AttemptRunners

_FRESH_S = LEASE.total_seconds() / 2


class Leases:
    """Every method raises Unavailable. One thread calls `renew`, another one the others."""

    def __init__(
        self,
        store: Verbs,
        runners: AttemptRunners,
        *,
        clock: Callable[[], float],
        in_pool: bool = False,
    ) -> None:
        self._in_pool = in_pool
        self._store = store
        self._runners = runners
        self._clock = clock
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
            self._runners.abandon({*attempt_ids} - self._store.renew(attempt_ids))
        self._renewed_at = began

    def confirm(self) -> bool:
        """Returns whether every running attempt still belongs to this worker. Abandons those that do not."""
        attempt_ids = set(self._runners.attempt_ids())
        if not attempt_ids:
            return True
        ours = {claim.attempt_id for claim in self._store.list_open()}
        self._runners.abandon(attempt_ids - ours)
        return attempt_ids <= ours | self._runners.done_ids()

    def continue_lost(self) -> None:
        """In a pool, ends what is of no open attempt: no other worker rescues an attempt whose runner has failed."""
        if self._in_pool:
            self.end_others()

    def end_others(self) -> bool:
        """Has the engine end what belongs to no open attempt.

        In a pool, attempts whose runner has failed are continued first: they are open. Returns False where that waits
        for the next renewal.
        """
        if self._in_pool:
            if not self.fresh:
                return False
            self._runners.adopt(self._store.list_open())
        self._runners.end_others()
        return True

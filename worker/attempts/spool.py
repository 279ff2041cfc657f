"""Storing what an attempt writes. The run directory is the spool: what cannot be stored now stays there."""

import logging
import time

from worker.attempts.lifecycle import Drained, Undrained
from worker.attempts.notices import Notices
from worker.attempts.records import Records
from worker.attempts.relay import Relay
from worker.cleanup import tidy

_BATCHES_AT_ONCE = 16
_RETRY_S = 1.0
_OUTAGE_S = 2.0
"""The shortest outage of the database that is told; a call that failed may be tried again later than that."""
_STORE = "store"
_WAITS = "what the attempt writes cannot be stored now, and waits"
_AGAIN = "what the attempt writes is stored again"

logger = logging.getLogger(__name__)


class Spool:
    """One attempt's. `attempts`: how many the job has had; what is removed of their checkpoints goes from the disk."""

    def __init__(self, relay: Relay, *, records: Records, notices: Notices, attempts: int) -> None:
        self.more = False
        """Whether the last turn left something that could be stored at once."""
        self._relay = relay
        self._records = records
        self._notices = notices
        self._attempts = attempts
        self._refusals = 0
        self._next = 0.0

    def store_some(self) -> bool:
        """As much as one turn may take; whether that was anything. Where the host refuses, nothing, and again after a
        second.
        """
        self.more = stored = False
        if time.monotonic() < self._next:
            return False
        try:
            for _ in range(_BATCHES_AT_ONCE):
                self.more = self._store(final=False)
                stored = stored or self.more
                if not self.more or self._relay.copying:  # a part of a checkpoint is enough for one turn
                    break
        except OSError as error:
            self._refuse(error)
        return stored

    def store_rest(self) -> Undrained | Drained:
        """The next part of what is left, once nothing writes any more."""
        try:
            return Undrained() if self._store(final=True) else Drained()
        except OSError as error:
            self._refuse(error)
            return Undrained(self._refusals)

    def close(self) -> None:
        """Gives up the checkpoint that is being copied, if one is. Raises OSError."""
        self._relay.close()

    def remove_copies(self) -> None:
        """Removes from this disk what is not listed any more of the job's checkpoints."""
        tidy.remove_copies(self._relay.folder, self._records.removed_among, attempts=self._attempts)

    def _store(self, *, final: bool) -> bool:
        batch = self._relay.read(final=final)
        if batch is None:
            return self._relay.copying
        with self._relay.storing(batch):
            self._records.record(batch)
        self._refusals = 0
        self._notices.over(_STORE, _AGAIN)
        if (outage_s := self._records.outage_s()) >= _OUTAGE_S:
            self._notices.tell(f"{_AGAIN}, after {outage_s:.0f} s without the database", level="info")
        if batch.checkpoints:
            self.remove_copies()
        return True

    def _refuse(self, error: OSError) -> None:
        self._refusals += 1
        self._next = time.monotonic() + _RETRY_S
        self._notices.trouble(_STORE, f"{_WAITS}: {error}")

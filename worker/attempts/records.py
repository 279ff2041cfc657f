"""One attempt's rows, written by the worker that owns it. While the database is away, every call waits for it."""

from collections.abc import Callable, Collection
import logging
import threading
import time
from typing import Any, TypeVar

from store.commands import attempts as commands
from store.db.database import Session
from store.db.tables import Attempt, Checkpoint, Job
from store.rows import attempts, checkpoints, intents, jobs
from store.rows.attempts import Batch, Claim
from store.rows.jobs import Reason
from store.store import Store
from torchyard.contract.errors import Unavailable
from torchyard.contract.job import EndReason, JobState
from torchyard.contract.records import ExitReport

T = TypeVar("T")

_MAX_DELAY_S = 10.0

logger = logging.getLogger(__name__)


class Records:
    """`leaving` ends the waiting: the call then raises Unavailable. Every write raises StaleClaim once the claim is."""

    def __init__(self, store: Store, claim: Claim, *, leaving: threading.Event) -> None:
        self._store = store
        self._claim = claim
        self._leaving = leaving
        self.start_step = 0
        """What the attempt's row says of it."""
        self._seq = 0
        self._runs: Reason | None = None
        self._outage_s = 0.0

    def read(self) -> tuple[Attempt, Job]:
        """The attempt's row and its job's. Raises StaleClaim where the attempt has ended."""

        def look(session: Session) -> tuple[Attempt, Job]:
            return attempts.read_open(session, self._claim), jobs.get(session, self._claim.job_id)

        row, job = self._read(look)
        self._seq, self.start_step = row.relay_seq, row.start_step
        return row, job

    def checkpoints(self) -> list[Checkpoint]:
        """The job's checkpoints, newest first."""
        return list(self._read(lambda session: checkpoints.newest_first(session, self._claim.job_id)))

    def names(self) -> list[str]:
        """Of the checkpoints that the attempt has ever listed."""
        look = checkpoints.recorded_names
        return self._read(lambda session: look(session, self._claim.job_id, attempt=self._claim.number))

    def removed_among(self, attempt: int, names: Collection[str]) -> set[str]:
        """Those of `names` that an attempt of the job listed and that were removed since."""
        look = checkpoints.removed_among
        return self._read(lambda session: look(session, self._claim.job_id, attempt=attempt, names=names))

    def wanted_end(self) -> EndReason | None:
        """How the attempt is to end, by the job's intents. Raises Unavailable at once, as an intent can be read again
        later, and StaleClaim as `read` does."""
        with self._store.read() as session:
            attempts.read_open(session, self._claim)
            return intents.requested_stop(jobs.get(session, self._claim.job_id))

    def prepared(self, start_step: int) -> None:
        """Records the step that the attempt resumes from, before its processes start."""
        self._insist(lambda: commands.mark_prepared(self._store, self._claim, start_step=start_step))
        self.start_step = start_step

    def launched(self, launcher: dict[str, Any]) -> None:
        """Records by what a later daemon finds the attempt's processes again: an engine's handle, as JSON."""
        self._insist(lambda: commands.mark_launched(self._store, self._claim, launcher))

    def will_run(self, reason: Reason) -> None:
        """The next write, of whatever, moves the job to `running`, if it is not there already."""
        self._runs = reason

    def write_running(self) -> None:
        """Writes what `will_run` said, where no other write has."""
        if (reason := self._runs) is not None:
            self._insist(lambda: commands.mark_running(self._store, self._claim, reason))
            self._runs = None

    def record(self, batch: Batch) -> None:
        """Stores a batch exactly once, even where the answer to an earlier try was lost."""
        self._insist(lambda: commands.record(self._store, self._claim, batch, seq=self._seq, running_reason=self._runs))
        self._seq += 1
        self._runs = None

    def end(self, report: ExitReport, *, asked: Collection[EndReason] = ()) -> JobState:
        """Closes the attempt and answers the job's next state. `asked`: the stops that the worker has asked for."""
        return self._insist(
            lambda: commands.end(self._store, self._claim, report, requested_stops=asked, running_reason=self._runs)
        )

    def outage_s(self) -> float:
        """The longest wait for the database since the last question, in seconds; 0.0 where it always answered."""
        outage_s, self._outage_s = self._outage_s, 0.0
        return outage_s

    def _read(self, look: Callable[[Session], T]) -> T:
        def once() -> T:
            with self._store.read() as session:
                return look(session)

        return self._insist(once)

    def _insist(self, work: Callable[[], T]) -> T:
        delay, failed_at = 0.25, None
        while True:
            try:
                answer = work()
            except Unavailable as error:
                failed_at = failed_at or time.monotonic()
                logger.warning("%s: %s; trying again in %.1f s", self._claim.job_id, error.message, delay)
                if self._leaving.wait(delay):
                    raise
                delay = min(delay * 2, _MAX_DELAY_S)
            else:
                if failed_at is not None:
                    self._outage_s = max(self._outage_s, time.monotonic() - failed_at)
                return answer

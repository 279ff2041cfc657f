"""One attempt's rows, written by the worker that owns it. While the database is away, every call waits for it."""

from collections.abc import Callable, Collection
import logging
import threading
import time
from typing import TypeVar

from store.db.database import Database, Session
from store.db.tables import Attempt, Checkpoint, Job
from store.rows import attempts, checkpoints, intents, jobs
from store.rows.attempts import Batch, Claim
from store.rows.jobs import Reason
from torchyard.errors import StaleClaim, Unavailable
from torchyard.job import EndReason, JobState
from torchyard.rundir import ExitReport, ProcessIdentity

T = TypeVar("T")

_MAX_DELAY_S = 10.0

logger = logging.getLogger(__name__)


class Ledger:
    """`leaving` ends the waiting: the call then raises Unavailable. Every write raises StaleClaim once the claim is.

    `announce` is told the job's id after each commit.
    """

    def __init__(
        self, database: Database, claim: Claim, *, leaving: threading.Event, announce: Callable[[str], None]
    ) -> None:
        self._database = database
        self._claim = claim
        self._announce = announce
        self._leaving = leaving
        self._seq = 0
        self._outage_s = 0.0

    def read(self) -> tuple[Attempt, Job]:
        """The attempt's row and its job's. Raises StaleClaim where the attempt has ended."""

        def look(session: Session) -> tuple[Attempt, Job]:
            return self._row(session), jobs.get(session, self._claim.job_id)

        row, job = self._insist(look)
        self._seq = row.relay_seq
        return row, job

    def checkpoints(self) -> list[Checkpoint]:
        """The job's checkpoints, newest first."""
        return list(self._insist(lambda session: checkpoints.newest_first(session, self._claim.job_id)))

    def names(self) -> list[str]:
        """Of the checkpoints that the attempt has ever listed."""
        look = checkpoints.names
        return self._insist(lambda session: look(session, self._claim.job_id, attempt=self._claim.number))

    def removed_among(self, attempt: int, names: Collection[str]) -> set[str]:
        """Those of `names` that an attempt of the job listed and that were removed since."""
        look = checkpoints.removed_among
        return self._insist(lambda session: look(session, self._claim.job_id, attempt=attempt, names=names))

    def wanted_end(self) -> EndReason | None:
        """How the attempt is to end, by the job's intents. Raises Unavailable at once, as an intent can be read again
        later, and StaleClaim as `read` does."""
        with self._database.read() as session:
            self._row(session)
            return intents.wanted(jobs.get(session, self._claim.job_id))

    def prepared(self, start_step: int) -> None:
        self._write("prepared", lambda session: attempts.prepared(session, self._claim, start_step=start_step))

    def launched(self, launcher: ProcessIdentity) -> None:
        self._write("launched", lambda session: attempts.launched(session, self._claim, launcher))

    def running(self, reason: Reason) -> JobState:
        """Answers the job's state, also where an earlier call whose answer was lost has moved it already."""

        def move(session: Session) -> None:
            if jobs.get(session, self._claim.job_id).state != JobState.RUNNING:
                attempts.running(session, self._claim, reason=reason)

        self._write("running", move)
        return JobState.RUNNING

    def record(self, batch: Batch) -> None:
        """Stores a batch exactly once, even where the answer to an earlier try was lost."""
        seq = self._seq

        def write(session: Session) -> None:
            try:
                attempts.record(session, self._claim, batch, seq=seq)
            except StaleClaim:
                if self._row(session).relay_seq != seq + 1:
                    raise

        self._write("record", write)
        self._seq = seq + 1

    def end(self, report: ExitReport) -> JobState:
        """Closes the attempt and answers the job's next state."""
        return self._write("end", lambda session: attempts.end(session, self._claim, report))

    def outage_s(self) -> float:
        """The longest wait for the database since the last question, in seconds; 0.0 where it always answered."""
        outage_s, self._outage_s = self._outage_s, 0.0
        return outage_s

    def _row(self, session: Session) -> Attempt:
        row = attempts.read(session, self._claim)
        if row.ended_at is not None:
            raise StaleClaim(f"attempt {self._claim.number} has ended")
        return row

    def _write(self, purpose: str, work: Callable[[Session], T]) -> T:
        answer = self._insist(work, purpose)
        self._announce(self._claim.job_id)
        return answer

    def _insist(self, work: Callable[[Session], T], purpose: str = "look") -> T:
        delay, failed_at = 0.25, None
        while True:
            try:
                with self._database.write(purpose) as session:
                    answer = work(session)
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

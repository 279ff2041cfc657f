"""Reads and writes one attempt's rows for the worker that owns it. While the database is away, every call waits."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
import logging
import threading
import time
from typing import Any, TypeVar

from store.commands import attempts as commands
from store.db.database import Session
from store.db.tables import Attempt, Job
from store.facts.checkpoints import CheckpointFacts
from store.facts.telemetry import Answer
from store.rows import artifacts, attempts, checkpoints, intents, jobs
from store.rows.artifacts import Room
from store.rows.attempts import Batch, Claim
from store.rows.limits import DEFAULTS, OutputLimits
from store.store import Store
from torchyard.contract.errors import Unavailable
from torchyard.contract.job import EndReason, JobState, Reason
from torchyard.contract.records import ExitReport
from torchyard.contract.views.telemetry import LiveLine, RankStacksView
from worker.attempts import secrets
from worker.attempts.secrets import AttemptSecrets
from worker.host.mask import Mask

T = TypeVar("T")

_FIRST_DELAY_S, _MAX_DELAY_S = 0.25, 10.0

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Wanted:
    """What the rows say is wanted of the attempt."""

    end: EndReason | None = None
    grace: timedelta | None = None
    """The longest grace of that end, if it is not just the job's."""
    stacks_requested_at: int | None = None

    @classmethod
    def of(cls, row: Attempt, job: Job) -> "Wanted":
        return cls(intents.requested_stop(job), intents.cancel_grace(job), row.stacks_requested_at)


class AttemptRecords:
    """Writes raise StaleClaim after the attempt has ended or been rescued.

    When `leaving` is set, a call that waits for the database raises Unavailable.
    """

    def __init__(
        self, store: Store, claim: Claim, *, leaving: threading.Event, limits: OutputLimits = DEFAULTS
    ) -> None:
        self._store = store
        self._claim = claim
        self._leaving = leaving
        self._limits = limits
        self.age = timedelta(0)
        """The time from the attempt's claim to the last `read`."""
        self.start_step = 0
        """The step that the attempt's row says it resumes from."""
        self.secrets = AttemptSecrets()
        """The secrets that the job's spec names."""
        self.mask = Mask()
        """Masks the values that these secrets have, or had since this process runs the attempt."""
        self._values: set[str] = set()
        self.cut: frozenset[str] = frozenset()
        """The outputs that the attempt's row says are cut, such as `log`."""
        self._seq = 0
        self._pending_running: Reason | None = None
        self._outage_s = 0.0

    def read(self) -> tuple[Attempt, Job]:
        """Returns the rows of the attempt and of its job. Raises StaleClaim if the attempt has ended."""

        def query(session: Session) -> tuple[Attempt, Job, AttemptSecrets, timedelta]:
            row, job = attempts.read_open(session, self._claim), jobs.get(session, self._claim.job_id)
            resolved = secrets.resolve(session, self._store.secret_keys, job)
            return row, job, resolved, attempts.age(session, row)

        row, job, self.secrets, self.age = self._read(query)
        self._values.update(self.secrets.values.values())
        self.mask = Mask(self._values)
        self._seq, self.start_step, self.cut = row.relay_seq, row.start_step, frozenset(row.cut.split())
        return row, job

    def checkpoints(self) -> list[CheckpointFacts]:
        """Returns the job's checkpoints, newest first."""
        return self._read(lambda session: checkpoints.newest_first(session, self._claim.job_id))

    def checkpoint_names(self) -> list[str]:
        """Returns the names of all checkpoints that the attempt has ever listed."""
        query = checkpoints.recorded_names
        return self._read(lambda session: query(session, self._claim.job_id, attempt=self._claim.number))

    def removed_among(self, attempt: int, names: Collection[str]) -> set[str]:
        """Returns those of `names` that an attempt of the job listed and that were removed since."""
        query = checkpoints.removed_among
        return self._read(lambda session: query(session, self._claim.job_id, attempt=attempt, names=names))

    def artifact_room(self) -> Room:
        """Returns which artifacts of the job are stored, and how many bytes its owner may store besides."""
        return self._read(lambda session: artifacts.room(session, self._claim.job_id))

    def wanted(self) -> Wanted:
        """Returns what is wanted of the attempt.

        Raises StaleClaim as `read` does. Raises Unavailable at once: an intent can be read again later.
        """
        with self._store.read() as session:
            row = attempts.read_open(session, self._claim)
            return Wanted.of(row, jobs.get(session, self._claim.job_id))

    def prepared(self, start_step: int) -> None:
        """Stores the step that the attempt resumes from, before its processes start."""
        self._retry_while_unavailable(lambda: commands.mark_prepared(self._store, self._claim, start_step=start_step))
        self.start_step = start_step

    def set_reason(self, reason: Reason) -> None:
        """Stores what the attempt does before its processes start, for the job's owner. Masks secrets in it."""
        reason = Reason(reason.code, self.mask.text(reason.message))
        self._retry_while_unavailable(lambda: commands.set_reason(self._store, self._claim, reason))

    def launched(self, handle: dict[str, Any]) -> None:
        """Stores the engine's handle as JSON, by which a later daemon finds the attempt's processes."""
        self._retry_while_unavailable(lambda: commands.mark_launched(self._store, self._claim, handle))

    def running_with_next_write(self, reason: Reason) -> None:
        """Has the next write, whichever it is, move the job to `running` unless it is there already."""
        self._pending_running = reason

    def write_running(self) -> None:
        """Moves the job to `running` if `running_with_next_write` asked for it and nothing was written since."""
        if (reason := self._pending_running) is not None:
            self._retry_while_unavailable(lambda: commands.mark_running(self._store, self._claim, reason))
            self._pending_running = None

    def record(self, batch: Batch) -> None:
        """Stores a batch exactly once, even if the answer to an earlier try was lost. Masks secrets in it."""
        masked = secrets.masked(batch, self.mask)
        self.cut = self._retry_while_unavailable(
            lambda: commands.record(
                self._store,
                self._claim,
                masked,
                seq=self._seq,
                limits=self._limits,
                running_reason=self._pending_running,
            )
        )
        self._seq += 1
        self._pending_running = None

    def show(self, texts: Mapping[tuple[int | None, str], str]) -> None:
        """Sends the newest texts of lines without an end, by rank and stream, to who watches. Masks secrets in them."""
        values = {"job_id": self._claim.job_id, "attempt": self._claim.number}
        self._store.show(
            [
                # The text may end within a secret, of which the rest comes later.
                LiveLine.model_validate(values | {"rank": rank, "stream": stream, "text": self.mask.quoted(text)})
                for (rank, stream), text in texts.items()
            ]
        )

    def store_stacks(self, requested_at: int, taken_at: int, ranks: Sequence[RankStacksView]) -> None:
        """Stores the answer to the request for the ranks' stacks that came at `requested_at`. Masks secrets in it."""
        masked = [
            view.model_copy(update={"text": self._quoted(view.text), "note": self._quoted(view.note)}) for view in ranks
        ]
        answer = Answer(
            requested_at=requested_at, taken_at=taken_at, ranks=[view.model_dump(mode="json") for view in masked]
        )
        self._retry_while_unavailable(lambda: commands.store_stacks(self._store, self._claim, answer))

    def end(self, report: ExitReport, *, requested: Collection[EndReason] = ()) -> JobState:
        """Closes the attempt and returns the job's next state. `requested`: the stops that the worker asked for."""
        masked = self.mask.report(report)
        return self._retry_while_unavailable(
            lambda: commands.end(
                self._store, self._claim, masked, requested_stops=requested, running_reason=self._pending_running
            )
        )

    def take_outage_s(self) -> float:
        """Returns the longest wait for the database since the last call, in seconds. 0.0 if it always answered."""
        outage_s, self._outage_s = self._outage_s, 0.0
        return outage_s

    def _quoted(self, text: str | None) -> str | None:
        return None if text is None else self.mask.quoted(text)

    def _read(self, query: Callable[[Session], T]) -> T:
        def read_once() -> T:
            with self._store.read() as session:
                return query(session)

        return self._retry_while_unavailable(read_once)

    def _retry_while_unavailable(self, operation: Callable[[], T]) -> T:
        delay, failed_at = _FIRST_DELAY_S, None
        while True:
            try:
                answer = operation()
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

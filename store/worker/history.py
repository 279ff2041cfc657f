"""What a worker asks of the past of a job: its earlier attempts, and what they have left."""

from collections.abc import Collection, Generator, Sequence
from contextlib import contextmanager

from sqlalchemy.orm import Session

from store.attempts import history, lease
from store.jobs import events as job_events
from store.jobs import initial_files
from store.output import artifacts, checkpoints
from store.store import Store
from store.worker.protocol import BEYOND_ALL
from store.worker.records import ArtifactFacts, CheckpointFacts, Claim, EarlierAttempt, InitialFacts
from torchyard.contract.states import EndReason

_MOST_ARTIFACTS = 100_000
_MOST_MESSAGES = 20


class JobHistory:
    """The direct driver of `store.worker.protocol.History`. Each method reads one snapshot."""

    def __init__(self, store: Store, *, asking: str | None = None) -> None:
        """`asking`: a remote worker, which is told of its own jobs alone."""
        self._store = store
        self._asking = asking

    def list_attempts(self, job_id: str, *, before: int = BEYOND_ALL) -> list[EarlierAttempt]:
        with self._read(job_id) as session:
            return history.list_earlier(session, job_id, before=before)

    def count_ended(self, claim: Claim, reason: EndReason, *, since: int, why: str = "") -> int:
        with self._read(claim.job_id) as session:
            return history.count_ended(session, claim.job_id, reason, since=since, why=why)

    def list_messages(self, job_id: str, *, attempt: int) -> list[str]:
        with self._read(job_id) as session:
            return job_events.newest_messages(session, job_id, attempt=attempt, limit=_MOST_MESSAGES)

    def list_checkpoints(self, job_id: str) -> list[CheckpointFacts]:
        with self._read(job_id) as session:
            return checkpoints.list_newest_first(session, job_id)

    def find_checkpoint(self, job_id: str, checkpoint_id: str) -> CheckpointFacts | None:
        with self._read(job_id) as session:
            return checkpoints.find_with_files(session, job_id, checkpoint_id)

    def list_files(self, job_id: str) -> tuple[list[CheckpointFacts], Sequence[ArtifactFacts]]:
        with self._read(job_id) as session:
            left = artifacts.list_after(session, job_id, limit=_MOST_ARTIFACTS, kept=None)
            return checkpoints.list_newest_first(session, job_id), left

    def find_initial(self, job_id: str) -> InitialFacts | None:
        with self._read(job_id) as session:
            return initial_files.of_job(session, job_id)

    def list_captured_names(self, job_id: str) -> list[str]:
        with self._read(job_id) as session:
            return checkpoints.list_captured_names(session, job_id)

    def list_published_names(self, claim: Claim) -> list[str]:
        with self._read(claim.job_id) as session:
            return checkpoints.list_recorded_names(session, claim.job_id, attempt=claim.number)

    def find_removed(self, job_id: str, *, attempt: int, names: Collection[str]) -> set[str]:
        with self._read(job_id) as session:
            return checkpoints.list_removed(session, job_id, attempt=attempt, names=names)

    @contextmanager
    def _read(self, job_id: str) -> Generator[Session]:
        with self._store.read() as session:
            if self._asking is not None:
                lease.require_job(session, self._asking, job_id)
            yield session

"""What must hold after recovery, whatever was killed."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sqlalchemy import select

from store.attempts.facts import Claim
from store.db.database import Database
from store.jobs import jobs
from store.output import logs
from store.output.metrics import POINT
from store.queue.announcing import Queue
from store.service_identity import service_id
from store.tables import Attempt, Checkpoint, Job, PointChunk
from tests import line
from tests.failpoints import actions
from tests.failpoints.armed import until
from tests.store.fixture import StoreFixture, service_of, store_on
from torchyard.contract.states import JobState
from worker.settings import Settings


class FailpointFixture(StoreFixture):
    """A store fixture with a Redis and folders."""

    def __init__(self, folder: Path, database: Database, redis_url: str) -> None:
        super().__init__(database)
        self.folder = folder
        service_id(database)  # as programs do when they start, before any transaction
        self.queue = Queue(redis_url, service=service_of(database))
        self.settings = Settings(
            data_dir=folder / "data",
            database_url=database.engine.url.render_as_string(hide_password=False),
            redis_url=redis_url,
            allow_paths=str(folder / "code"),
        )
        self.settings.root.mkdir()
        self.log = folder / "failpoints.log"

    def submit_queued(self, **spec: Any) -> str:
        """Submits a job and puts it into the queue."""
        job_id = self.submit(**spec)
        self.queue.announce(line.told(self.job(job_id)))
        return job_id

    def jobs(self) -> Sequence[Job]:
        return self.read(lambda session: session.scalars(select(Job).order_by(Job.id)).all())

    def attempts(self, job_id: str) -> Sequence[Attempt]:
        query = select(Attempt).where(Attempt.job_id == job_id).order_by(Attempt.number)
        return self.read(lambda session: session.scalars(query).all())

    def checkpoints(self, job_id: str) -> Sequence[Checkpoint]:
        query = select(Checkpoint).where(Checkpoint.job_id == job_id).order_by(Checkpoint.attempt, Checkpoint.step)
        return self.read(lambda session: session.scalars(query).all())

    def take_over(self, job_id: str) -> None:
        """Does what other workers do: rescues the attempt, claims the job, and finishes it."""
        other = self.worker("next")

        def finish() -> bool:
            job = self.job(job_id)
            if JobState(job.state).terminal:
                return True
            self.end_rescued(job_id)
            claim = self.claim(job_id, other)
            if claim is not None:
                actions.report(store_on(self.database, queue=self.queue), claim)
            return False

        until(finish, "the job has ended")

    def end_rescued(self, job_id: str) -> None:
        """Rescues the job's open attempt, as after the end of its lease."""
        for row in self.attempts(job_id):
            if row.ended_at is None:
                claim = Claim(row.id, job_id, row.number, row.worker_id)
                self.expire(claim)
                self.rescue(claim)

    def check(self, job_id: str, *, state: JobState = JobState.SUCCEEDED) -> None:
        """Checks that the job has ended once, holds nothing, and has everything stored exactly once."""
        job, attempts = self.job(job_id), self.attempts(job_id)
        moves = self.moves(job_id)
        assert (job.state, job.finished_at is not None) == (state, True)
        assert [move for move in moves if JobState(move).terminal] == [state], moves
        assert [row.number for row in attempts] == list(range(1, job.attempt + 1))
        assert all(row.ended_at is not None for row in attempts)
        assert all(row.released_at is not None for row in self.allocations())
        points, lines = Counter(self.points(job_id)), Counter(self.lines(job_id))
        assert set(points.values()) | set(lines.values()) <= {1}, (points, lines)
        assert [step for attempt, step in points if attempt == job.attempt] == list(actions.STEPS)
        names = [(row.attempt, row.name) for row in self.checkpoints(job_id)]
        assert len(set(names)) == len(names)
        assert job.attempt in {attempt for attempt, _ in names}
        self.check_queue()

    def check_queue(self) -> None:
        """Checks that a rebuilt queue equals the rows."""
        line.sweep(self.queue, self.database)
        assert line.waiting(self.queue) == [job_id for job_id, _ in self.read(jobs.queued)]

    def points(self, job_id: str) -> list[tuple[int, int]]:
        """Returns attempt and step of each stored point."""
        query = select(PointChunk).where(PointChunk.job_id == job_id).order_by(PointChunk.first)
        chunks = self.read(lambda session: session.scalars(query).all())
        return [(chunk.attempt, step) for chunk in chunks for step, _, _ in POINT.iter_unpack(chunk.data)]

    def lines(self, job_id: str) -> list[tuple[int, str]]:
        found = self.read(lambda session: logs.list_after(session, job_id, line=0, limit=1000).items)
        return [(line.attempt, line.text) for line in found]

    def told(self, job_id: str) -> list[str]:
        """Returns the types of the events that the job's attempts reported."""
        return [event.type for event in self.events(job_id) if event.type != "state" and event.attempt is not None]

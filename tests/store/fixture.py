"""Shortcuts for the operations of the API and the workers on a store, each in its own transaction."""

from collections.abc import Callable, Generator, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
import functools
from pathlib import Path
import threading
from typing import Any, TypeVar

import pytest
from sqlalchemy import Connection, event, insert, inspect, select, update
from sqlalchemy.orm import Session

from scheduling.snapshot import Device, Placement
from store.attempts import append, end
from store.attempts import claim as claims
from store.attempts import state as attempts
from store.attempts.facts import Claim
from store.blobs import puts
from store.blobs.facts import Put
from store.blobs.folder import BlobFolder
from store.cluster import workers
from store.db import prepared
from store.db.database import Database, now_us
from store.ids import new_id
from store.jobs import events as job_events
from store.jobs import jobs, new_jobs, reasons, resume, stop
from store.jobs import submit as submission
from store.jobs.facts import DisplayedReason
from store.jobs.submission import Retry, Submission
from store.output import series
from store.output.facts import Batch, NewCheckpoint
from store.output.series import PointFilter, SeriesColumns
from store.queue import positions, reservations
from store.queue.announcing import Queue
from store.queue.groups import Groups
from store.queue.reservations import Change, Runs
from store.secret_keys import SecretKeys
from store.service_identity import service_id
from store.store import Store
from store.tables import Allocation, Attempt, Base, Job, RemovedBlob
from store.team.callers import SERVICE, Caller
from torchyard.contract.attempts.pausing import PausePoint
from torchyard.contract.attempts.records import ExitReport, Manifest, ManifestFile
from torchyard.contract.spec.spec import Spec, parse_spec
from torchyard.contract.states import EndReason, JobState, Reason
from torchyard.contract.team.roles import Role
from torchyard.contract.telemetry.views import EventView

T = TypeVar("T")


def new_job(session: Session, spec: Spec, *, owner: str = "ada") -> Any:
    """Stores a new queued job, whatever else a submission does. Returns its columns."""
    (job,) = new_jobs.insert_all(session, [Submission(spec, Caller(owner, Role.MEMBER), "private")])
    jobs.announce(session, job)
    return job


class StoreFixture:
    def __init__(self, database: Database) -> None:
        self.database = database

    def read(self, look: Callable[[Session], T]) -> T:
        with self.database.read() as session:
            return look(session)

    def write(self, change: Callable[[Session], T]) -> T:
        with self.database.write() as session:
            return change(session)

    def series(self, job_id: str, where: PointFilter = PointFilter()) -> dict[str, SeriesColumns]:  # noqa: B008
        """Returns the job's series by key."""
        return dict(found for found in series.read(self.database, job_id, where) if found is not None)

    def submit(self, *, owner: str = "ada", **spec: Any) -> str:
        parsed = self.spec(**spec)
        return self.write(lambda session: new_job(session, parsed, owner=owner)).id

    def retry(self, job_id: str, *, owner: str = "ada", **wanted: Any) -> str:
        """Retries an ended job. Returns the id of the new one."""
        retry = Retry(job_id, Caller(owner, Role.MEMBER), **wanted)
        return self.write(lambda session: submission.submit(session, retry)).job.id

    @staticmethod
    def spec(**changes: Any) -> Spec:
        """Returns the spec of a script job."""
        return parse_spec({"trainer": "script", "config": {"code": "file:///code"}} | changes)

    def submit_many(self, count: int, *, owner: str = "ada", **spec: Any) -> list[str]:
        """Submits equal jobs, all but the first in one statement."""
        like = self.job(self.submit(owner=owner, **spec))
        table = Base.metadata.tables["jobs"]
        row = {
            item.columns[0].name: getattr(like, item.key) for item in inspect(Job).column_attrs if item.key != "notes"
        }
        rows = [{**row, "id": new_id("job")} for _ in range(count - 1)]
        if rows:
            self.write(lambda session: session.execute(insert(table), rows))
        return [like.id, *(str(new["id"]) for new in rows)]

    def hold_back(self, job_id: str, *, seconds: float) -> None:
        """Holds the job back as after a failure."""
        until = now_us() + int(seconds * 1_000_000)
        self.write(lambda session: session.execute(update(Job).where(Job.id == job_id).values(not_before=until)))

    def crash(self, job_id: str, times: int) -> None:
        """Counts so many attempts without a checkpoint, as if they had ended."""
        crashed = update(Job).where(Job.id == job_id).values(attempts_without_checkpoint=times)
        self.write(lambda session: session.execute(crashed))

    def worker(self, name: str = "box-a") -> str:
        worker_id = new_id("wrk")
        self.write(lambda session: workers.register(session, worker_id, name=name, devices=[]))
        return worker_id

    def claim(
        self, job_id: str, worker_id: str, *devices: str, reservation: int | None = None, guest: bool = False
    ) -> Claim | None:
        placement = placement_on(worker_id, *devices or ("slot-0",))
        return self.write(
            lambda session: claims.claim(session, job_id, placement, reservation=reservation, guest=guest)
        )

    def reserve(self, *changes: Change, known: Set[Runs] = frozenset()) -> bool:
        return self.write(lambda session: reservations.reserve(session, changes, known=known)) is not None

    def kept(self) -> dict[str, tuple[str, int]]:
        """Returns for whom the CPU slots of each worker are kept, with the version."""
        kept = self.read(reservations.kept_places)
        return {place.worker_id: (place.job_id, place.version) for place in kept}

    def starting(self, job_id: str, worker_id: str, *devices: str, reservation: int | None = None) -> Claim:
        claim = self.claim(job_id, worker_id, *devices, reservation=reservation)
        assert claim is not None
        return claim

    def running(self, job_id: str, worker_id: str, *devices: str, reservation: int | None = None) -> Claim:
        claim = self.starting(job_id, worker_id, *devices, reservation=reservation)
        self.write(lambda session: attempts.mark_running(session, claim, reason=Reason("running", "runs")))
        return claim

    def record(self, claim: Claim, *, seq: int, put: Put = Put(), **batch: Any) -> None:  # noqa: B008
        stored = Batch(offsets=batch.pop("offsets", {}), **batch)
        with self.database.write() as session:
            puts.check(session, put)
            append.record(session, claim, stored, seq=seq)

    def step(self, claim: Claim) -> None:
        """Stores that the attempt has told of a step: an error of its program after that may be retried."""
        told = update(Attempt).where(Attempt.id == claim.attempt_id, Attempt.ended_at.is_(None))
        self.write(lambda session: session.execute(told.values(stepped_at=now_us())))

    def end(
        self, claim: Claim, reason: EndReason, message: str = "", *, asked: bool = True, stepped: bool = True
    ) -> JobState:
        """Ends the attempt. `asked`: whether the worker has requested a stop of this reason. `stepped`: whether it has
        told of a step before an error of its program."""
        if stepped and reason is EndReason.USER_ERROR:
            self.step(claim)
        report = ExitReport(reason=reason, message=message, rank=None if stepped else 0)
        stops = {reason} if asked else set[EndReason]()
        return self.write(lambda session: end.end(session, claim, report, requested_stops=stops))

    def complete(self, claim: Claim) -> None:
        """Lets the attempt run, and its job succeed."""
        if self.job(claim.job_id).state == JobState.STARTING:
            self.write(lambda session: attempts.mark_running(session, claim, reason=Reason("running", "runs")))
        self.end(claim, EndReason.COMPLETED)

    def cancel(self, job_id: str, *, grace: timedelta | None = None) -> Job:
        return self.write(lambda session: stop.request_cancel(session, job_id, grace=grace))

    def pause(self, job_id: str) -> Job:
        return self.write(lambda session: stop.request_pause(session, job_id))

    def resume(self, job_id: str) -> Job:
        return self.write(lambda session: resume.resume(session, job_id))

    def pause_at(self, job_id: str, **point: int) -> None:
        """Lets the attempts of the job pause by themselves, as those of a trial do."""
        self.write(lambda session: session.execute(update(Job).where(Job.id == job_id).values(pause_at=point)))

    def promote(self, job_id: str, **point: int) -> bool:
        found = PausePoint.of(point) if point else None
        return self.write(lambda session: resume.promote(session, job_id, found))

    def preempt(self, *victims: str, preemptor: str) -> bool:
        return self.write(lambda session: stop.request_preempt(session, victims, preemptor=preemptor))

    def drain(self, worker_id: str, *, drain: bool = True) -> None:
        self.write(lambda session: workers.set_drain(session, worker_id, drain=drain))

    def expire(self, claim: Claim) -> None:
        """Lets the lease of the attempt expire."""
        past = update(Attempt).where(Attempt.id == claim.attempt_id).values(lease_until=now_us() - 1)
        self.write(lambda session: session.execute(past))

    def let_removals_end(self) -> None:
        """Lets the time be over of whoever removes blobs and was killed."""
        self.write(lambda session: session.execute(update(RemovedBlob).values(removed_by=now_us() - 1)))

    def rescue(self, claim: Claim) -> bool:
        return self.write(lambda session: end.rescue(session, claim))

    def heads(self) -> list[str]:
        """Returns the first job of each group, by the rows."""
        return sorted(job.id for job in self.read(lambda session: Groups(session).heads()))

    def place(self, job_id: str) -> int | None:
        """Returns the job's position in the queue, by the rows."""
        rows = [self.job(job_id)]
        return self.read(lambda session: positions.find_positions(session, rows)).get(job_id)

    def job(self, job_id: str) -> Job:
        return self.read(lambda session: jobs.require(session, job_id))

    def reason(self, job_id: str) -> DisplayedReason:
        """Returns the reason of the job's state, as users see it."""
        return self.read(lambda session: reasons.displayed(session, [jobs.require(session, job_id)])[job_id])

    def attempt(self, claim: Claim) -> Attempt:
        return self.read(lambda session: attempts.find(session, claim))

    def events(self, job_id: str) -> Sequence[EventView]:
        return self.read(
            lambda session: job_events.list_events(session, job_id, caller=SERVICE, after=0, limit=100_000).items
        )

    def moves(self, job_id: str) -> list[str]:
        """Returns the states that the job entered, by its events."""
        return [event.data["to"] for event in self.events(job_id) if event.type == "state"]

    def held(self) -> dict[tuple[str, str], str]:
        return self.read(jobs.device_holders)

    def everything(self) -> dict[str, list[dict[str, Any]]]:
        """Returns every row of every table, for comparisons."""

        def look(session: Session) -> dict[str, list[dict[str, Any]]]:
            tables = Base.metadata.sorted_tables
            return {
                table.name: sorted((dict[Any, Any](row) for row in session.execute(select(table)).mappings()), key=str)
                for table in tables
            }

        return self.read(look)

    def allocations(self) -> Sequence[Allocation]:
        return self.read(lambda session: session.scalars(select(Allocation).order_by(Allocation.id)).all())


def placement_on(worker_id: str, *devices: str) -> Placement:
    """Returns devices of a worker, whose names are their ids."""
    return Placement(worker_id, tuple(Device(index=0, uuid=device, name=device, kind="cpu") for device in devices))


@contextmanager
def recorded_statements(database: Database) -> Generator[list[str]]:
    """Records the statements executed on the database in the block, without transaction control.

    Those of `store.db.prepared` too, of which SQLAlchemy knows nothing.
    """
    found: list[str] = []

    class RecordingCursor(prepared.Cursor):
        def __init__(self, connection: Connection, text: str, *, keeps_rows: bool = False) -> None:
            super().__init__(connection, text, keeps_rows=keeps_rows)
            if connection.engine.pool is database.engine.pool:
                found.append(text)

    def note(connection: Any, cursor: Any, statement: str, *_: Any) -> None:
        if not statement.startswith("BEGIN"):
            found.append(statement)

    event.listen(database.engine, "before_cursor_execute", note)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(prepared, "Cursor", RecordingCursor)
            yield found
    finally:
        event.remove(database.engine, "before_cursor_execute", note)


def store_on(database: Database, *, queue: Queue | None = None, blobs: BlobFolder | None = None) -> Store:
    """Returns a store on the database; without `queue` and `blobs` it has no Redis and no blobs."""
    nowhere = Path("/nowhere")
    queue = queue or Queue(f"unix://{nowhere / 'redis.sock'}", service=a_service)
    keys = SecretKeys("", nowhere / "secret.key")
    return Store(database, queue, blobs or BlobFolder(nowhere), keys, service=a_service)


def a_service() -> str:
    """The id of a service, for a store or a queue that no other program shares."""
    return "svc_tests"


def service_of(database: Database) -> Callable[[], str]:
    """Returns what tells a queue the id of the database's service, for one that programs on the database share."""
    return functools.cache(lambda: service_id(database))


def checkpoint(
    name: str, *, step: int, epoch: int | None = None, end_of_epoch: bool = True, **metrics: float
) -> NewCheckpoint:
    """Returns a checkpoint as the relay reads it; `val_loss=1.0` is the metric `val/loss`."""
    named = {key.replace("_", "/", 1): value for key, value in metrics.items()}
    file = ManifestFile(path="state.pt", size=1, sha256="0" * 64)
    manifest = Manifest(step=step, epoch=epoch, end_of_epoch=end_of_epoch, metrics=named, files=[file])
    return NewCheckpoint(name=name, manifest=manifest, files=[file])


def run_together(*calls: Callable[[], T]) -> list[T | Exception]:
    """Runs the calls in threads that start together, and returns their results or exceptions in order."""
    barrier = threading.Barrier(len(calls))

    def run(call: Callable[[], T]) -> T | Exception:
        barrier.wait()
        try:
            return call()
        except Exception as error:  # noqa: BLE001 - the test judges it
            return error

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(run, calls))

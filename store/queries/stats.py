"""Statistics of the whole service, for its operator."""

from collections import Counter
from dataclasses import dataclass

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from store.db.database import Snapshots, now_us
from store.db.tables import Attempt, Calibration, ForecastLease, Job, Series, Worker
from store.facts.attempts import LEASE
from store.rows import controllers, jobs, workers
from torchyard.contract.devices import StartsReport
from torchyard.contract.job import JobState

DEVICE_STATES = ("free", "held", "blocked", "lost")
"""`blocked`: not offered, although no job of the service holds it. `lost`: not held, and its worker is not alive."""

_LEASE_US = int(LEASE.total_seconds() * 1_000_000)
_ALL_WORKERS = 10_000
_CALIBRATIONS = select(Calibration.bucket, Calibration.scored, Calibration.held, Calibration.of).order_by(
    Calibration.bucket
)


@dataclass(frozen=True)
class OpenAttempt:
    """Times are in microseconds."""

    job_id: str
    worker: str
    lease_age: int
    """Time since its worker renewed the lease."""
    relay_lag: int
    """Age of the oldest line of the newest batch when it was read."""


@dataclass(frozen=True)
class WorkerStats:
    id: str
    name: str
    age: int
    """Microseconds since its last heartbeat."""
    devices: Counter[tuple[str, str]]
    """Number of devices by kind and state (one of `DEVICE_STATES`)."""
    starts: StartsReport | None


@dataclass(frozen=True)
class EstimateStats:
    """How well the estimates of starts did of which the replay said a wait of one bucket."""

    scored: int
    held: int
    """Of the newest ones with an interval: in so many of them the job started."""
    of: int


@dataclass(frozen=True)
class ServiceStats:
    now: int
    """Microseconds since the epoch, by the database's clock."""
    jobs: dict[JobState, int]
    attempts: list[OpenAttempt]
    workers: list[WorkerStats]
    points: int
    """Number of stored metric points."""
    controller_age: int | None
    """Microseconds since a controller did its duties; None if none ever has."""
    estimates_age: int | None
    """Microseconds since the newest estimates were made; None if there are none."""
    estimates: dict[int, EstimateStats]
    """By bucket, of those of which any was scored."""


def collect(store: Snapshots) -> ServiceStats:
    """Reads the statistics in one transaction. Raises Unavailable."""
    with store.read() as session:
        return _collect(session)


def _collect(session: Session) -> ServiceStats:
    now = session.execute(select(now_us())).scalar_one()
    counted = dict(session.execute(select(Job.state, func.count()).group_by(Job.state)).all())
    return ServiceStats(
        now=now,
        jobs={state: counted.get(state, 0) for state in JobState},
        attempts=_open_attempts(session, now),
        workers=_seen_workers(session, now),
        points=int(session.scalar(select(func.sum(Series.count))) or 0),
        controller_age=controllers.age(session),
        estimates_age=session.scalar(select(now - ForecastLease.made_at)),
        estimates={row.bucket: EstimateStats(row.scored, row.held, row.of) for row in session.execute(_CALIBRATIONS)},
    )


def _open_attempts(session: Session, now: int) -> list[OpenAttempt]:
    query = (
        select(Attempt.job_id, Worker.name, Attempt.lease_until, Attempt.relay_lag_us)
        .join(Worker, Worker.id == Attempt.worker_id)
        .where(Attempt.ended_at.is_(None))
        .order_by(Attempt.id)
    )
    return [
        OpenAttempt(job_id, name, now - (lease_until - _LEASE_US), lag)
        for job_id, name, lease_until, lag in session.execute(query)
    ]


def _seen_workers(session: Session, now: int) -> list[WorkerStats]:
    held = jobs.device_holders(session)
    return [
        WorkerStats(row.id, row.name, now - row.seen_at, _devices(row, alive, held), _starts(row))
        for row, alive in workers.list_all(session, limit=_ALL_WORKERS)
    ]


def _starts(worker: Worker) -> StartsReport | None:
    return None if worker.starts is None else StartsReport.from_dict(worker.starts)


def _devices(worker: Worker, alive: bool, held: dict[tuple[str, str], str]) -> Counter[tuple[str, str]]:
    counted = Counter({(device["kind"], state): 0 for device in worker.devices for state in DEVICE_STATES})
    for device in worker.devices:
        if (worker.id, device["uuid"]) in held:
            state = "held"
        elif not alive:
            state = "lost"
        else:
            state = "blocked" if device.get("blocked") else "free"
        counted[device["kind"], state] += 1
    return counted

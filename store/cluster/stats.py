"""Statistics of the whole service, for its operator."""

from collections import Counter
from dataclasses import dataclass

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from store.attempts.facts import LEASE
from store.cluster import controllers, workers
from store.db.database import now_us
from store.jobs import counts as job_counts
from store.jobs import jobs
from store.tables import Attempt, Calibration, ForecastLease, Worker
from store.team import stored_counts
from store.team.stored_counts import Stored
from torchyard.contract.cluster.devices import StartsReport
from torchyard.contract.states import JobState

DEVICE_STATES = ("free", "held", "blocked", "lost")
"""`blocked`: not offered, although no job of the service holds it. `lost`: not held, and its worker is not alive."""

_LEASE_US = int(LEASE.total_seconds() * 1_000_000)
_ALL_WORKERS = 10_000
_CALIBRATIONS = select(Calibration.bucket, Calibration.scored, Calibration.held, Calibration.of).order_by(
    Calibration.bucket
)


@dataclass(frozen=True)
class OpenAttempts:
    """The open attempts of a worker. Times are in microseconds."""

    worker: str
    count: int
    lease_age: int
    """The longest time since it renewed the lease of one."""
    relay_lag: int
    """The greatest age of the oldest line of an attempt's newest batch when that was read."""


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
    attempts: list[OpenAttempts]
    workers: list[WorkerStats]
    stored: Stored
    controller_age: int | None
    """Microseconds since a controller did its duties; None if none ever has."""
    estimates_age: int | None
    """Microseconds since the newest estimates were made; None if there are none."""
    estimates: dict[int, EstimateStats]
    """By bucket, of those of which any was scored."""


def collect(session: Session) -> ServiceStats:
    """Reads the statistics."""
    now = session.execute(select(now_us())).scalar_one()
    return ServiceStats(
        now=now,
        jobs=job_counts.of_all(session),
        attempts=_open_attempts(session, now),
        workers=_seen_workers(session, now),
        stored=stored_counts.count(session),
        controller_age=controllers.age(session),
        estimates_age=session.scalar(select(now - ForecastLease.made_at)),
        estimates={row.bucket: EstimateStats(row.scored, row.held, row.of) for row in session.execute(_CALIBRATIONS)},
    )


def _open_attempts(session: Session, now: int) -> list[OpenAttempts]:
    query = (
        select(Worker.name, func.count(), func.min(Attempt.lease_until), func.max(Attempt.relay_lag_us))
        .join(Worker, Worker.id == Attempt.worker_id)
        .where(Attempt.ended_at.is_(None))
        .group_by(Worker.name)
        .order_by(Worker.name)
    )
    return [
        OpenAttempts(name, count, now - (lease_until - _LEASE_US), lag)
        for name, count, lease_until, lag in session.execute(query)
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

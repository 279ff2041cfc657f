"""Jobs that have run for a while: what their ranks wait for, how their devices are used, and warnings of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from sqlalchemy import Row, Select, select
from sqlalchemy.orm import Session

from store.cluster import device_history
from store.cluster.facts import Slots
from store.db.database import in_us, now_us
from store.jobs import events as job_events
from store.jobs import jobs
from store.notifications import signals
from store.output import metrics
from store.tables import Allocation, Attempt, Job
from torchyard.contract.advice import JUDGED
from torchyard.contract.states import JobState

WINDOW = timedelta(minutes=10)
"""Of so much time the use of devices is judged, and so long a job has run before it is."""
_MOST_JOBS = 1000
_MOST_SLOTS = 1000


@dataclass(frozen=True)
class RunningFacts:
    """A job that has run for a while."""

    job_id: str
    attempt: int
    ranks: int
    values: Mapping[str, float]
    """The newest values of the metrics that are judged."""
    used: Sequence[float]
    """The mean utilization of each GPU that it holds, 0…1, as far as it is known."""


def list_running(session: Session) -> list[RunningFacts]:
    """Returns jobs that have run for `WINDOW` or longer without a break."""
    rows = session.execute(_select_running()).all()
    values = metrics.read_latest(session, [row.id for row in rows], keys=JUDGED) if rows else {}
    used = _measure_use(session, rows)
    return [RunningFacts(row.id, row.attempt, len(row.devices), values[row.id], used[row.id]) for row in rows]


def warn(session: Session, job_id: str, *, attempt: int, cause: str, text: str) -> bool:
    """Adds a warning to a job whose attempt runs, unless it has one of this cause. Returns whether it did."""
    job = jobs.lock(session, job_id)
    if job is None or (job.state, job.attempt) != (JobState.RUNNING, attempt):
        return False
    if (job_id, cause) in job_events.find_causes(session, [job_id]):
        return False
    data = {"level": "warning", "text": text, "cause": cause}
    job_events.append(session, job_id, type="message", attempt=attempt, data=data)
    signals.add_warnings(session, job, [text])
    return True


def _select_running() -> Select[str, int, list[Any], int, str]:
    since = Attempt.running_at <= now_us() - in_us(WINDOW)
    query = select(Job.id, Job.attempt, Job.devices, Attempt.id.label("attempt_id"), Attempt.worker_id)
    query = query.join(Attempt, Attempt.job_id == Job.id).where(Attempt.ended_at.is_(None), since)
    return query.where(Job.state == JobState.RUNNING).order_by(Job.id).limit(_MOST_JOBS)


def _measure_use(session: Session, rows: Sequence[Row[str, int, list[Any], int, str]]) -> dict[str, list[float]]:
    """Returns the means by job."""
    of_attempts = {row.attempt_id: row.id for row in rows}
    gpus = select(Allocation.attempt_id, Allocation.worker_id, Allocation.device)
    gpus = gpus.where(
        Allocation.attempt_id.in_(of_attempts), Allocation.kind == "cuda", Allocation.released_at.is_(None)
    )
    held = session.execute(gpus).all()
    now = session.execute(select(now_us())).scalar_one() // 1_000_000
    begins = now - int(WINDOW.total_seconds())
    slots = {
        worker: device_history.read(session, worker, begins=begins, ends=now, most=_MOST_SLOTS).slots
        for worker in {row.worker_id for row in held}
    }
    uses: dict[str, list[float]] = {row.id: [] for row in rows}
    for row in held:
        job_id = of_attempts[row.attempt_id]
        uses[job_id] += _mean_use(slots[row.worker_id], row.device, job_id)
    return uses


def _mean_use(slots: Slots, device: str, job_id: str) -> list[float]:
    """Returns the mean utilization of the device while the job held it; nothing if it is not known."""
    uses = [use for slot in slots.values() if (use := slot.get(device)) is not None and use.job_id == job_id]
    shares = [use.utilization for use in uses if use.utilization is not None]
    return [sum(shares) / len(shares)] if shares else []

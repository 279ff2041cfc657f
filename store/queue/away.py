"""Jobs whose remote worker does not answer. The training may go on there, until another worker takes the job."""

from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, and_, exists, literal_column, select
from sqlalchemy.orm import Session

from scheduling.snapshot import Waiting
from store.attempts import lease
from store.attempts.facts import Claim
from store.db.prepared import Prepared
from store.jobs import jobs
from store.queue import waiting
from store.tables import Attempt, Job, Worker
from torchyard.contract.states import JobState, Reason

AWAY = "worker_away"
"""Reason code of a job whose remote worker does not answer."""


@dataclass(frozen=True)
class AwayJob:
    claim: Claim
    """The attempt that ends when another worker takes the job."""
    job: Waiting


def _is_away() -> ColumnElement[bool]:
    return and_(Attempt.ended_at.is_(None), lease.may_return())


_ANY_AWAY = Prepared(select(literal_column("1")).where(exists().where(_is_away())))
_AWAY = Prepared(
    select(Attempt.id, Attempt.job_id, Attempt.number, Attempt.worker_id, Job.reason_code).join(Job).where(_is_away())
)


def any_away(session: Session) -> bool:
    """Returns whether a job could be taken from a worker that does not answer."""
    return bool(_ANY_AWAY.read(session))


def list_away(session: Session) -> list[AwayJob]:
    """Returns the jobs that could be taken, the highest priority first, and then the oldest."""
    claims = {row.job_id: _claim_of(row) for row in _AWAY.rows(session)}
    found = [AwayJob(claims[job.id], job) for job in waiting.open_among(session, claims)]
    return sorted(found, key=lambda one: (-one.job.priority, one.job.submitted, one.job.id))


def list_unnoted(session: Session) -> list[Claim]:
    """Returns the attempts of which the job does not say yet that its worker is away."""
    return [_claim_of(row) for row in _AWAY.rows(session) if row.reason_code != AWAY]


def note(session: Session, claim: Claim) -> None:
    """Has the job say that its worker does not answer, unless it does again."""
    query = select(Job.state, Worker.name).join(Attempt, Attempt.job_id == Job.id).join(Worker)
    row = session.execute(query.where(Attempt.id == claim.attempt_id, _is_away())).first()
    if row is None:
        return
    message = f"{row.name} does not answer: the job may still run there, and restarts on another free worker"
    jobs.set_reason(session, claim.job_id, JobState(row.state), Reason(AWAY, message))


def note_back(session: Session, attempt_ids: set[int]) -> None:
    """Has the jobs of these attempts say that their worker answers again, if they said otherwise."""
    if not attempt_ids:
        return
    query = select(Job.id, Job.state).join(Attempt, Attempt.job_id == Job.id)
    for row in session.execute(query.where(Attempt.id.in_(attempt_ids), Job.reason_code == AWAY)).all():
        jobs.set_reason(session, row.id, JobState(row.state), Reason(row.state, "its worker answers again"))


def _claim_of(row: Any) -> Claim:
    return Claim(row.id, row.job_id, row.number, row.worker_id)

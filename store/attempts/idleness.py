"""Attempts that do not use their GPUs, by the reports of their workers."""

from typing import Any

from sqlalchemy import Row, Select, case, select, update
from sqlalchemy.orm import Session

from store.attempts.facts import LEASE
from store.attempts.idleness_facts import IdleFacts
from store.db.database import in_us, now_us
from store.db.stored_spec import StoredSpec
from store.tables import Attempt, AttemptUse, Job
from torchyard.contract.idleness import SHORTEST_IDLE_TIMEOUT
from torchyard.contract.job import JobState

_SOONEST_US = in_us(SHORTEST_IDLE_TIMEOUT) // 2
"""No job is warned before."""
# A recipe has set up when it tells of its first step; of a script nobody knows.
_SET_UP = case((Job.trainer == "script", Attempt.running_at), else_=Attempt.stepped_at)
_SINCE = case((AttemptUse.idle_since > _SET_UP, AttemptUse.idle_since), else_=_SET_UP)
_STOPS = (Job.cancel_requested_at, Job.pause_requested_at, Job.preempt_requested_at, Job.idle_requested_at)


def find(session: Session, job_id: str | None = None) -> list[IdleFacts]:
    """Returns the running jobs that may be warned or stopped as idle, or this one.

    A worker that was silent for a lease has told nothing of now, and a job that is asked to stop is left alone.
    """
    query = _idle() if job_id is None else _idle().where(Job.id == job_id)
    return [_facts(row) for row in session.execute(query)]


def note_warning(session: Session, job_id: str) -> None:
    """Stores that the job is warned now."""
    open_one = select(Attempt.id).where(Attempt.job_id == job_id, Attempt.ended_at.is_(None)).scalar_subquery()
    change = update(AttemptUse).where(AttemptUse.attempt_id == open_one).values(warned_at=now_us())
    session.execute(change, execution_options={"synchronize_session": False})


def _idle() -> Select[str, int, list[Any], Any, int, Any, int | None]:
    query = select(
        Job.id,
        Attempt.number,
        Job.devices,
        Job.spec["idle_timeout"].label("idle_timeout"),
        now_us().label("now"),
        _SINCE.label("since"),
        AttemptUse.warned_at,
    )
    query = query.join(Attempt, Attempt.id == AttemptUse.attempt_id).join(Job, Job.id == Attempt.job_id)
    return query.where(
        Attempt.ended_at.is_(None),
        Job.state == JobState.RUNNING,
        *(request.is_(None) for request in _STOPS),
        AttemptUse.idle_since.is_not(None),
        AttemptUse.seen_at > now_us() - in_us(LEASE),
        now_us() - _SINCE >= _SOONEST_US,
    ).order_by(Job.id)


def _facts(row: Row[str, int, list[Any], Any, int, Any, int | None]) -> IdleFacts:
    written = {} if row.idle_timeout is None else {"idle_timeout": row.idle_timeout}
    return IdleFacts(
        job_id=row.id,
        attempt=row.number,
        devices=len(row.devices),
        now=row.now,
        since=row.since,
        warned_at=row.warned_at,
        idle_timeout=StoredSpec.model_validate(written).idle_timeout,
    )

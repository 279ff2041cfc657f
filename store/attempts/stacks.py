"""Requests for the stacks of an attempt's ranks, and the newest answer. An attempt that has ended has neither."""

from sqlalchemy import func, select, update
from sqlalchemy.orm import Session

from store.announcement import announcement_of
from store.db.database import now_us
from store.jobs import jobs
from store.output.facts import Stacks
from store.tables import Attempt
from store.team import access
from store.team.callers import SERVICE, Caller
from torchyard.contract.errors import Conflict

_COLUMNS = (Attempt.number, Attempt.stacks_requested_at, Attempt.stacks)


def request(session: Session, job_id: str, caller: Caller = SERVICE) -> Stacks:
    """Asks the worker of the job for the stacks of its ranks. A request that waits for its answer stays as it is.

    Raises NotFound, Forbidden, and Conflict for a job that does not run.
    """
    access.check_own(session, job_id, caller)
    # The job's row is not locked: a worker locks the attempt first, and the two would wait for each other.
    asked = session.execute(
        update(Attempt)
        .where(Attempt.job_id == job_id, Attempt.ended_at.is_(None))
        .values(stacks_requested_at=func.coalesce(Attempt.stacks_requested_at, now_us()))
        .returning(*_COLUMNS)
    ).first()
    if asked is None:
        raise _does_not_run(session, job_id)
    announcement_of(session).wake_workers()
    return Stacks(*asked)  # pyrefly: ignore[bad-argument-type] it is stored as an Answer


def read(session: Session, job_id: str, caller: Caller = SERVICE) -> Stacks:
    """Returns the request and the answer of the attempt that runs. Raises as `request` does."""
    access.check_own(session, job_id, caller)
    row = session.execute(select(*_COLUMNS).where(Attempt.job_id == job_id, Attempt.ended_at.is_(None))).first()
    if row is None:
        raise _does_not_run(session, job_id)
    return Stacks(*row)  # pyrefly: ignore[bad-argument-type] it is stored as an Answer


def _does_not_run(session: Session, job_id: str) -> Conflict:
    state = jobs.require(session, job_id).state
    return Conflict(f"job {job_id} is {state}: only a job that runs has stacks")

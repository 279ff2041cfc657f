"""Lets held jobs go on once those for which they wait have ended, or fails them."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import and_, select, update
from sqlalchemy.orm import Session

from store.db.database import now_us
from store.jobs import dependencies, initial_files, initial_weights, jobs
from store.jobs.facts import WAITING
from store.jobs.submission import Submission
from store.tables import HELD, Dependency, Job
from store.team import users
from store.team.callers import Caller, may_read
from torchyard.contract.errors import InvalidSpec, OwnerDisabled
from torchyard.contract.spec.after import is_failed, unmet
from torchyard.contract.spec.initial import AfterRef, parse_initial
from torchyard.contract.spec.spec import parse_spec
from torchyard.contract.states import EndReason, JobState, Reason
from torchyard.contract.team.roles import Visibility

AT_ONCE = 100
"""Jobs of one transaction, so that others can write after it."""


def settle(session: Session, job_ids: Collection[str]) -> bool:
    """Settles held jobs, and those that wait for one that has failed by this, up to `AT_ONCE`. Returns whether any was.

    Each is settled once, whoever does so at the same time, and by whatever it is interrupted.
    """
    done = settled = settle_some(session, job_ids)
    while settled and len(done) < AT_ONCE:
        after = dependencies.due_after(session, settled, limit=AT_ONCE - len(done))
        settled = settle_some(session, after) if after else []
        done = [*done, *settled]
    return bool(done)


def settle_some(session: Session, job_ids: Collection[str]) -> list[str]:
    """Queues those of the held jobs that may go on, and fails the others. Returns all whose state or position is new.

    `job_ids` are of those that `dependencies.due` returns. A job that another transaction has locked is left as it is.
    """
    # First those from which jobs start, as a submission does.
    initial_weights.lock_sources(session, _sources(session, job_ids))
    awaited = _awaited(session, job_ids)
    query = select(Job).where(Job.id.in_(job_ids), Job.state == JobState.QUEUED, Job.not_before == HELD)
    query = query.order_by(Job.id).with_for_update(skip_locked=True).execution_options(populate_existing=True)
    held = session.scalars(query).all()
    released = [job.id for job in held if _goes_on(session, job, awaited[job.id])]
    _queue(session, released)
    return [job.id for job in held]


@dataclass(frozen=True, slots=True)
class _Awaited:
    """A job for which another one waits. If it was deleted, no name is left, and no owner."""

    job_id: str
    on: str
    state: JobState | None
    name: str | None
    owner: str
    visibility: str


def _sources(session: Session, job_ids: Collection[str]) -> set[str]:
    """Returns the jobs of which these are to start from a checkpoint."""
    named = session.scalars(select(Job.spec["init_from"].as_string()).where(Job.id.in_(job_ids)))
    parsed = (parse_initial(text) for text in named if text is not None)
    return {ref.job for ref in parsed if isinstance(ref, AfterRef)}


def _awaited(session: Session, job_ids: Collection[str]) -> dict[str, list[_Awaited]]:
    """Returns for which jobs each one waits."""
    query = select(Dependency, Job.state, Job.name, Job.owner, Job.visibility)
    query = query.outerjoin(Job, Job.id == Dependency.awaited).where(Dependency.job_id.in_(job_ids))
    awaited: dict[str, list[_Awaited]] = {job_id: [] for job_id in job_ids}
    for row, state, name, owner, visibility in session.execute(query.order_by(Dependency.job_id, Dependency.number)):
        ending = dependencies.state_of(row.ended or state)
        awaited[row.job_id].append(_Awaited(row.awaited, row.on, ending, name, owner or "", visibility or ""))
    return awaited


def _goes_on(session: Session, job: Job, awaited: Sequence[_Awaited]) -> bool:
    """Returns whether the job may be queued. If not, pauses it or fails it."""
    try:
        caller = users.act_for(session, job.owner)
    except OwnerDisabled as error:
        reason = Reason(error.code, f"{error.message}: resume the job once this is solved")
        jobs.transition(session, job.id, JobState.PAUSED, reason=reason, locked=job, pause_requested_at=now_us())
        return False
    try:
        _check(job, awaited, caller)
        _pin(session, job, caller)
    except _Failed as failed:
        _fail(session, job, failed.message)
        return False
    return True


class _Failed(Exception):
    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


def _check(job: Job, awaited: Sequence[_Awaited], caller: Caller) -> None:
    """Raises _Failed if one of the jobs did not end as it must, or its owner has made it private since."""
    for each in awaited:
        if each.name is not None and not may_read(caller, each):
            raise _Failed(f"{job.owner} can no longer read job {each.job_id}, which this job waits for")
    for each in awaited:
        name = dependencies.shown_name(each.job_id, each.name, each.visibility, to=job.visibility)
        if each.state is None:
            raise _Failed(f"job {each.job_id}, which this job waits for, was deleted")
        if is_failed(each.on, each.state):
            raise _Failed(unmet(name, each.on, each.state))


def _pin(session: Session, job: Job, caller: Caller) -> None:
    """Stores which checkpoint the job starts from, if it is one of a job for which it waits. Raises _Failed."""
    if not str(job.spec.get("init_from") or "").startswith("$"):
        return
    try:
        spec = parse_spec(job.spec)
        ref = spec.later_weights
        assert isinstance(ref, AfterRef), "a stored spec names what it waits for"
        named = spec.model_copy(update={"init_from": f"{ref.job}/{ref.ref}"})
        visibility: Visibility = "team" if job.visibility == "team" else "private"
        pinned = initial_weights.pinned(session, Submission(named, caller, visibility))
    except InvalidSpec as error:
        raise _Failed("; ".join(f"{each.field}: {each.message}" for each in error.errors)) from None
    assert pinned.initial is not None, "the spec names a checkpoint"
    initial_files.add_all(session, {job.id: pinned.initial})
    change = update(Job).where(Job.id == job.id).values(spec={**job.spec, "init_from": pinned.spec.init_from})
    session.execute(change, execution_options={"synchronize_session": False})


def _fail(session: Session, job: Job, message: str) -> None:
    error: dict[str, Any] = {"code": EndReason.DEPENDENCY_FAILED.value, "message": message}
    reason = Reason(EndReason.DEPENDENCY_FAILED, message)
    jobs.transition(session, job.id, JobState.FAILED, reason=reason, detail={"error": error}, locked=job, error=error)


def _queue(session: Session, job_ids: Sequence[str]) -> None:
    """Puts the jobs into the line. They have waited in it from now on."""
    if not job_ids:
        return
    moved = session.scalars(
        update(Job)
        .where(and_(Job.id.in_(job_ids), Job.not_before == HELD))
        .values(
            version=Job.version + 1,
            not_before=None,
            lined_at=now_us(),
            reason_code=WAITING.code,
            reason_message=WAITING.message,
            reason_since=now_us(),
        )
        .returning(Job)
        .execution_options(populate_existing=True, synchronize_session=False)
    )
    for job in moved.all():
        jobs.announce(session, job)

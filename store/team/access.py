"""Which jobs, models, sweeps and schedules a caller may list, read and change. Each rule is a condition of a query."""

from collections.abc import Collection, Sequence
from functools import cache
from typing import Any, TypeAlias

from sqlalchemy import ColumnElement, FromClause, Row, Select, String, bindparam, or_, select, true
from sqlalchemy.orm import QueryableAttribute, Session

from store.announcement import announcement_of, channel
from store.cluster.facts import NamedJob
from store.ids import is_id
from store.tables import Base, Job, Model, Schedule, Sweep
from store.team.callers import Caller, lists_unreadable
from torchyard.contract.errors import Forbidden, NotFound
from torchyard.contract.team.roles import Role

_Shared: TypeAlias = type[Job] | type[Model] | type[Sweep] | type[Schedule]
"""What has an owner, and may be read by others."""

_IDS_PER_QUERY = 500
_JOBS = Base.metadata.tables["jobs"]


def announce(session: Session, name: str) -> None:
    """Makes open streams check again, after the commit, whether they may go on: those of a user, or of a job."""
    announcement_of(session).mark_changed(channel(name))


def match_readable(caller: Caller, kind: _Shared = Job) -> ColumnElement[bool]:
    """Returns the condition that the caller may read the job: spec, events, metrics, logs and checkpoints.

    Or that they may read the model, the sweep or the schedule.
    """
    return _readable_by(caller.name, caller.role, kind)


def match_listed(caller: Caller) -> ColumnElement[bool]:
    """Returns the condition that the job's row is in the caller's lists."""
    return true() if lists_unreadable(caller) else match_readable(caller)


def changeable(caller: Caller, kind: _Shared = Job, *, ending: bool = False) -> ColumnElement[bool]:
    """Returns the condition that the caller may change what is of that kind, or, with `ending`, end it by force."""
    if caller.role is Role.ADMIN or (ending and caller.role is Role.OPERATOR):
        return true()
    return kind.owner == caller.name


def find_listed(session: Session, job_ids: Collection[str], caller: Caller) -> dict[str, NamedJob]:
    """Returns those of the jobs that the caller may list, by their ids."""
    ids, jobs = sorted(job_ids), dict[str, NamedJob]()
    for first in range(0, len(ids), _IDS_PER_QUERY):
        some = ids[first : first + _IDS_PER_QUERY]
        query = select(Job.id, Job.name, Job.owner).where(Job.id.in_(some), match_listed(caller))
        jobs |= {row.id: NamedJob(*row) for row in session.execute(query)}
    return jobs


def require_job(session: Session, job_id: str, caller: Caller) -> Job:
    """Returns a job that the caller may read. Raises NotFound, also for what is no job's id."""
    _check_id(job_id)
    job = session.scalars(select(Job).where(Job.id == job_id, match_readable(caller))).first()
    if job is None:
        raise NotFound(f"there is no job {job_id}")
    return job


def is_readable(session: Session, job_id: str, caller: Caller) -> bool:
    """Returns whether the caller may read the job."""
    return session.scalar(select(Job.id).where(Job.id == job_id, match_readable(caller))) is not None


def readable_job(
    session: Session,
    job_id: str,
    caller: Caller,
    *columns: QueryableAttribute[Any] | ColumnElement[Any],
    source: FromClause = _JOBS,
) -> Row[*tuple[Any, ...]]:
    """Returns columns of a job that the caller may read, of `source`, which has the jobs.

    Raises NotFound, also for what is no job's id.
    """
    _check_id(job_id)
    query = _readable_columns(columns or (Job.id,), source, caller.role)
    row = session.connection().execute(query, {"id": job_id, "caller": caller.name}).first()
    if row is None:
        raise NotFound(f"there is no job {job_id}")
    return row


def check_own(session: Session, job_id: str, caller: Caller, *, ending: bool = False) -> None:
    """Checks that `changeable` holds for the job. Raises as `lock` does."""
    if session.scalar(select(Job.id).where(Job.id == job_id, changeable(caller, ending=ending))) is None:
        raise _refusal(session, job_id, caller)


def refusals(
    session: Session, job_ids: Sequence[str], caller: Caller, *, reads: bool = False, ending: bool = False
) -> dict[str, NotFound | Forbidden]:
    """Returns what `readable_job`, with `reads`, or else `check_own` raises for some of the jobs, by id.

    A few statements find it, however many jobs there are.
    """
    allowed = match_readable(caller) if reads else changeable(caller, ending=ending)
    owners, may = dict[str, str](), set[str]()
    valid = [job_id for job_id in job_ids if is_id(job_id, "job")]
    for first in range(0, len(valid), _IDS_PER_QUERY):
        some = Job.id.in_(valid[first : first + _IDS_PER_QUERY])
        rows = session.execute(select(Job.id, Job.owner).where(some, match_readable(caller)))
        owners |= {row.id: row.owner for row in rows}
        may.update(session.scalars(select(Job.id).where(some, allowed)))
    refused = [job_id for job_id in job_ids if job_id not in may]
    return {job_id: _forbidden(job_id, owners[job_id]) if job_id in owners else _missing(job_id) for job_id in refused}


def lock(session: Session, job_id: str, caller: Caller, *, ending: bool = False) -> Job:
    """Returns a job for which `changeable` holds, locked until the transaction ends.

    Raises Forbidden if the caller may only read it, and NotFound otherwise.
    """
    query = select(Job).where(Job.id == job_id, changeable(caller, ending=ending)).with_for_update()
    job = session.scalars(query.execution_options(populate_existing=True)).first()
    if job is None:
        raise _refusal(session, job_id, caller)
    return job


def lock_readable(session: Session, job_id: str, caller: Caller, *, waits: bool = True) -> Job:
    """Returns a job that the caller may read, locked until the transaction ends. Raises NotFound.

    `waits`: for a transaction that has locked it; otherwise it is not found.
    """
    query = select(Job).where(Job.id == job_id, match_readable(caller)).with_for_update(skip_locked=not waits)
    job = session.scalars(query.execution_options(populate_existing=True)).first()
    if job is None:
        raise NotFound(f"there is no job {job_id}")
    return job


def _readable_by(name: str | ColumnElement[str], role: Role, kind: _Shared = Job) -> ColumnElement[bool]:
    if role is Role.ADMIN:
        return true()
    return or_(kind.owner == name, kind.visibility == "team")


# Building a statement costs more than executing it, and nearly every request for a job executes one of these.
@cache
def _readable_columns(columns: tuple[Any, ...], source: FromClause, role: Role) -> Select[*tuple[Any, ...]]:
    condition = _readable_by(bindparam("caller", type_=String), role)
    return select(*columns).select_from(source).where(_JOBS.c.id == bindparam("id"), condition)


def _check_id(job_id: str) -> None:
    if not is_id(job_id, "job"):
        raise _missing(job_id)


def _refusal(session: Session, job_id: str, caller: Caller) -> Forbidden:
    return _forbidden(job_id, require_job(session, job_id, caller).owner)


def _forbidden(job_id: str, owner: str) -> Forbidden:
    return Forbidden(f"job {job_id} belongs to {owner}: only its owner and administrators may do this")


def _missing(job_id: str) -> NotFound:
    return NotFound(f"there is no job {job_id}" if is_id(job_id, "job") else f"there is no job {job_id[:100]!r}")

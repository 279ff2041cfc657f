"""For which other jobs jobs wait, and which of those that wait may go on, or cannot."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import Select, and_, bindparam, case, func, insert, literal_column, or_, select, update
from sqlalchemy.orm import Session, aliased

from store.jobs.facts import DependencyFacts
from store.queue.line.conditions import is_queued
from store.tables import HELD, Dependency, Job
from store.team import access
from store.team.callers import Caller
from torchyard.contract.states import WAITS_FOR_JOBS, JobState, Reason

_MOST_NAMED = 3
"""Jobs that a reason names."""
_TERMINAL = [state.value for state in JobState if state.terminal]
_FAILED, _OPEN, _MET = 0, 1, 2


def _verdict() -> Any:
    """Builds what has become of the jobs for which one waits: the least of the three, over all of them."""
    awaited = aliased(Job)
    state = func.coalesce(Dependency.ended, awaited.state)
    met = or_(state == Dependency.on, and_(Dependency.on == "finished", state.in_(_TERMINAL)))
    each = case((met, _MET), (state.not_in(_TERMINAL), _OPEN), else_=_FAILED)
    joined = select(func.min(each)).select_from(Dependency).outerjoin(awaited, awaited.id == Dependency.awaited)
    # In a subquery of one value, so that no planner joins it: the rows of a few jobs are read by their ids.
    return func.coalesce(joined.where(Dependency.job_id == Job.id).scalar_subquery(), _MET)


_HELD = and_(is_queued(), Job.not_before.is_not(None), Job.not_before == literal_column(str(HELD)))
# Built once: the controller executes it after each end of a job. In no order, or SQLite reads every queued job.
_DUE = select(Job.id).where(_HELD, _verdict() != _OPEN).limit(bindparam("limit"))


def add_all(session: Session, after: Mapping[str, Sequence[DependencyFacts]]) -> None:
    """Notes for which jobs new jobs wait, by the ids of the new ones."""
    rows = [
        {"job_id": job_id, "number": number, "awaited": each.job_id, "on": each.on}
        for job_id, dependencies in after.items()
        for number, each in enumerate(dependencies)
    ]
    if rows:
        session.execute(insert(Dependency), rows)


def of_job(session: Session, job_id: str, caller: Caller) -> list[DependencyFacts]:
    """Returns the jobs in the job's `after`, as the caller may see them."""
    query = select(Dependency, Job.name, Job.state)
    query = query.outerjoin(Job, and_(Job.id == Dependency.awaited, access.match_readable(caller)))
    rows: Iterable[Any] = session.execute(query.where(Dependency.job_id == job_id).order_by(Dependency.number))
    return [DependencyFacts(each.awaited, name, each.on, state_of(each.ended or state)) for each, name, state in rows]


def state_of(written: str | None) -> JobState | None:
    """Returns the state that a row has, if there is one."""
    return None if written is None else JobState(written)


def waiting(names: Sequence[str]) -> Reason:
    """Returns the reason of a job that waits for those jobs."""
    named, others = [*names[:_MOST_NAMED]], len(names) - _MOST_NAMED
    if others > 0:
        named.append(f"{others} more")
    listed = named[0] if len(named) == 1 else f"{', '.join(named[:-1])} and {named[-1]}"
    return Reason(WAITS_FOR_JOBS, f"waits for {listed}")


def waiting_again(session: Session, job: Job) -> Reason:
    """Returns the reason of a job that is held."""
    query = select(Dependency.awaited, Job.name, Job.visibility).outerjoin(Job, Job.id == Dependency.awaited)
    rows = session.execute(query.where(Dependency.job_id == job.id).order_by(Dependency.number))
    return waiting([shown_name(*row, to=job.visibility) for row in rows])


def shown_name(job_id: str, name: str | None, visibility: str | None, *, to: str) -> str:
    """Returns what is said of a job in the texts of another one, whose visibility is `to`."""
    return name if name is not None and (visibility == "team" or to == "private") else job_id


def is_held_again(job: Job) -> bool:
    """Returns whether the paused job is to be held when it is queued: no attempt of it was released so far."""
    return job.attempt == 0 and bool(job.spec.get("after"))


def note_deleted(session: Session, job: Job) -> None:
    """Keeps for those that wait for the job how it has ended: it is being deleted."""
    change = update(Dependency).where(Dependency.awaited == job.id).values(ended=job.state)
    session.execute(change, execution_options={"synchronize_session": False})


def due(session: Session, *, limit: int) -> Sequence[str]:
    """Returns held jobs that may start, or that cannot, as what they wait for has ended."""
    return session.scalars(_DUE, {"limit": limit}).all()


def due_after(session: Session, job_ids: Collection[str], *, limit: int) -> Sequence[str]:
    """Returns those that `due` does which wait for one of these jobs."""
    after: Select[Any] = select(Dependency.job_id).where(Dependency.awaited.in_(job_ids))
    return session.scalars(_DUE.where(Job.id.in_(after)), {"limit": limit}).all()

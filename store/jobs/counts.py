"""How many jobs are in each state, as the database keeps it: no job is read."""

from sqlalchemy import ColumnElement, delete, func, insert, or_, select, tuple_
from sqlalchemy.orm import Session

from store.tables import JobCount
from store.team.callers import Caller, lists_unreadable
from torchyard.contract.states import JobState
from torchyard.contract.team.roles import Role

_MOST_ROWS = 8
"""The most rows of an owner's jobs in one state that are left as they are."""
_SUMMED = 10_000
"""The most rows that one call adds up."""
KEY = (JobCount.owner, JobCount.visibility, JobCount.state, JobCount.archived)


def by_state(
    session: Session, *, caller: Caller, owner: str | None = None, archived: bool = False
) -> dict[JobState, int]:
    """Returns how many jobs of the caller's lists are in each state that any is in; with `owner`, of that one's.

    `archived`: those that are archived, in place of the others.
    """
    query = select(JobCount.state, func.sum(JobCount.jobs)).where(*_listed(caller), JobCount.archived.is_(archived))
    query = query.group_by(JobCount.state)
    if owner is not None:
        query = query.where(JobCount.owner == owner)
    counts = {state: int(jobs) for state, jobs in session.execute(query)}
    return {state: counts[state] for state in JobState if counts.get(state)}


def of_all(session: Session) -> dict[JobState, int]:
    """Returns how many jobs of all owners are in each state, those that are archived too."""
    counts = dict(session.execute(select(JobCount.state, func.sum(JobCount.jobs)).group_by(JobCount.state)).all())
    return {state: int(counts.get(state, 0)) for state in JobState}


def add_up(session: Session) -> None:
    """Replaces rows of one owner and state by their sum, where there are many. Any number of workers may do this."""
    many = select(*KEY).group_by(*KEY).having(func.count() > _MOST_ROWS)
    some = select(JobCount.id).where(tuple_(*KEY).in_(many)).order_by(JobCount.id).limit(_SUMMED)
    # Rows that another worker adds up are skipped: two workers that wait for each other's rows would deadlock.
    ids = some.with_for_update(skip_locked=True)
    gone = session.execute(delete(JobCount).where(JobCount.id.in_(ids)).returning(*KEY, JobCount.jobs)).all()
    sums: dict[tuple[str, str, str, bool], int] = {}
    for row in gone:
        key = (row.owner, row.visibility, row.state, row.archived)
        sums[key] = sums.get(key, 0) + row.jobs
    rows = [
        {"owner": owner, "visibility": visibility, "state": state, "archived": archived, "jobs": jobs}
        for (owner, visibility, state, archived), jobs in sums.items()
        if jobs
    ]
    if rows:
        session.execute(insert(JobCount), rows)


def _listed(caller: Caller) -> list[ColumnElement[bool]]:
    """Returns the condition of `store.team.access.match_listed`, of counts."""
    if caller.role is Role.ADMIN or lists_unreadable(caller):
        return []
    return [or_(JobCount.owner == caller.name, JobCount.visibility == "team")]

"""How many jobs of a list have each value of a label, by state."""

from collections import defaultdict

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from store.db.tables import Job
from store.facts.callers import Caller
from store.facts.jobs import LabelGroup, LabelGroups
from store.rows import access, listing
from torchyard.contract.filters import JobQuery
from torchyard.contract.job import JobState

_MOST_JOBS = 10_000
_MOST_GROUPS = 200


def groups(session: Session, where: JobQuery, key: str, *, caller: Caller) -> LabelGroups:
    """Returns the groups of the newest jobs of the list, the largest first, and then those without the label.

    Labels of jobs that the caller may only list are not told, so such jobs are in no group.
    """
    value = Job.labels[key].as_string().label("value")
    found = select(value, Job.state).where(access.readable(caller), *listing.conditions(session, where, caller))
    newest = found.order_by(Job.id.desc()).limit(_MOST_JOBS).subquery()
    counted = select(newest.c.value, newest.c.state, func.count()).group_by(newest.c.value, newest.c.state)
    by_value: dict[str | None, dict[JobState, int]] = defaultdict(dict)
    for of_value, state, count in session.execute(counted):
        by_value[of_value][JobState(state)] = count
    total = sum(sum(counts.values()) for counts in by_value.values())
    ordered = sorted(by_value.items(), key=lambda item: (item[0] is None, -sum(item[1].values()), item[0] or ""))
    made = [
        LabelGroup(of_value, {state: counts[state] for state in JobState if state in counts})
        for of_value, counts in ordered[:_MOST_GROUPS]
    ]
    return LabelGroups(made, is_complete=total < _MOST_JOBS and len(ordered) <= _MOST_GROUPS)

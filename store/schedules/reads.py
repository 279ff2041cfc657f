"""What is told of schedules. What a caller may not read is not found. All of them raise Unavailable."""

from collections.abc import Sequence

from store.db.database import Snapshots
from store.output import pages_facts as pages
from store.output.pages_facts import FactPage
from store.schedules import due_schedules
from store.schedules import rows as schedules
from store.schedules.facts import Due, ScheduleFacts
from store.team.callers import Caller


def get(store: Snapshots, schedule_id: str, *, caller: Caller) -> ScheduleFacts:
    """Returns a schedule. Raises NotFound, also for what is no schedule's id."""
    with store.read() as session:
        return schedules.get(session, schedule_id, caller)


def newest_first(
    store: Snapshots, *, caller: Caller, owner: str | None, limit: int, before: str | None = None
) -> FactPage[ScheduleFacts]:
    """Returns schedules of one owner or all; with `before` (an id), only older ones."""
    with store.read() as session:
        found = schedules.newest_first(session, caller, owner=owner, limit=limit + 1, before=before)
        return pages.first(found, limit)


def due(store: Snapshots, *, limit: int) -> Sequence[Due]:
    """Returns what is due of schedules, the oldest first."""
    with store.read() as session:
        return due_schedules.some(session, limit=limit)

"""Schedules, and what their owners ask of them. What is due of them is in `store.schedules.runs`."""

from dataclasses import dataclass
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from store import pages
from store.db.columns import to_time
from store.db.database import now_us
from store.db.upsert import upsert
from store.ids import is_id, new_id
from store.jobs.idempotency import made_by
from store.jobs.submission import KeyedRequest
from store.notifications import targets
from store.pages import FactPage
from store.schedules import cron
from store.tables import Schedule
from store.team import access, audit, quotas, users
from store.team.callers import Caller
from torchyard.contract.bundles.names import bundles_of
from torchyard.contract.errors import Conflict, Forbidden, NotFound
from torchyard.contract.schedules import (
    RefusedRun,
    ScheduledRun,
    SchedulePatch,
    ScheduleState,
    ScheduleSummary,
    ScheduleView,
)
from torchyard.contract.spec import schedule as contract
from torchyard.contract.spec.spec import Spec, parse_spec
from torchyard.contract.states import Reason
from torchyard.contract.team.roles import Visibility

MOST = 100
"""Of one owner."""
_PAUSED = Reason("paused", "paused by its owner")


@dataclass(frozen=True)
class NewSchedule:
    """A job spec with a `schedule`. `visibility`: the default visibility, for a spec that sets none.

    `keyed`: the request, if it has an idempotency key.
    """

    spec: Spec
    schedule: contract.Schedule
    caller: Caller
    visibility: Visibility
    keyed: KeyedRequest | None = None


def add(session: Session, new: NewSchedule) -> tuple[ScheduleView, bool]:
    """Stores a schedule. Returns it, and whether an earlier request with the same key has made it.

    The targets in `notify` are checked now, as no run is refused for one that is missing; the rest at each run.
    Raises InvalidSpec, also for times that never come, IdempotencyMismatch, Conflict if the owner has too many, and
    QuotaExceeded if the owner has stored as much as they may.
    """
    owner = new.caller.name
    if new.keyed is not None and (known := made_by(session, Schedule, new.keyed)) is not None:
        return _view_of(known), True
    targets.check(session, owner, new.spec)
    users.lock(session, owner)  # the count below would miss what another request adds meanwhile
    if (count := session.scalar(select(func.count()).where(Schedule.owner == owner)) or 0) >= MOST:
        raise Conflict(f"{owner} has {count} schedules; the maximum is {MOST}: delete some first")
    quotas.check_written(session, owner)
    while (row := _insert(session, new)) is None:  # another request with the same key was faster
        assert new.keyed is not None
        if (known := made_by(session, Schedule, new.keyed)) is not None:
            return _view_of(known), True
    audit.add(session, new.caller, "schedule.add", row.id)
    return _view_of(row), False


def find(session: Session, schedule_id: str, *, caller: Caller) -> ScheduleView:
    """Returns a schedule that the caller may read. Raises NotFound, also for what is no schedule's id."""
    return _view_of(_find_readable(session, schedule_id, caller))


def list_schedules(
    session: Session, *, caller: Caller, owner: str | None, limit: int, after: str | None = None
) -> FactPage[ScheduleSummary]:
    """Returns schedules that the caller may read, of one owner or all, newest first; with `after` (an id), only older
    ones.
    """
    query = (
        select(Schedule).where(access.match_readable(caller, Schedule)).order_by(Schedule.id.desc()).limit(limit + 1)
    )
    if owner is not None:
        query = query.where(Schedule.owner == owner)
    rows = session.scalars(query if after is None else query.where(Schedule.id < after))
    return pages.first([ScheduleSummary(**_values_of(row)) for row in rows], limit)


def change(session: Session, schedule_id: str, patch: SchedulePatch, *, caller: Caller) -> ScheduleView:
    """Pauses or resumes a schedule, or replaces its times. A time that went by meanwhile is not made up for.

    Raises NotFound, Forbidden, and InvalidSpec for times that never come.
    """
    row = _lock_changeable(session, schedule_id, caller)
    schedule = patch.schedule if "schedule" in patch.model_fields_set else read_schedule(row)
    next_at: int | None = None
    paused = patch.paused if "paused" in patch.model_fields_set else row.state == ScheduleState.PAUSED
    if not paused or "schedule" in patch.model_fields_set:
        # A time of which there is a run does not come again, whatever the clock of the database says.
        next_at = cron.check(schedule, max(read_now(session), row.last_due_at or 0))
    row.schedule, row.overlap = schedule.model_dump(mode="json"), schedule.overlap
    if not paused:
        row.state, row.next_at, row.refused = ScheduleState.ACTIVE, next_at, 0
        row.reason_code = row.reason_message = None
    elif row.state != ScheduleState.PAUSED:
        row.state, row.next_at = ScheduleState.PAUSED, None
        row.reason_code, row.reason_message = _PAUSED.code, _PAUSED.message
    session.flush()
    audit.add(session, caller, "schedule.change", schedule_id)
    return _view_of(row)


def remove(session: Session, schedule_id: str, *, caller: Caller) -> None:
    """Deletes a schedule. Its runs stay. Raises NotFound and Forbidden."""
    session.delete(_lock_changeable(session, schedule_id, caller))
    session.flush()
    audit.add(session, caller, "schedule.delete", schedule_id)


def read_schedule(row: Schedule) -> contract.Schedule:
    """Returns the times of a schedule."""
    return contract.Schedule.model_validate(row.schedule)


def read_now(session: Session) -> int:
    """Returns the time by the database's clock, in microseconds since the epoch."""
    return session.scalars(select(now_us())).one()


def _insert(session: Session, new: NewSchedule) -> Schedule | None:
    """Stores the row; None if there is one with the same key."""
    visibility = new.spec.visibility or new.visibility
    spec = new.spec.model_copy(update={"schedule": None, "visibility": visibility})
    schedule_id = new_id("sch")
    values = {
        "id": schedule_id,
        "owner": new.caller.name,
        "name": spec.name,
        "visibility": visibility,
        "spec": spec.model_dump(mode="json"),
        "schedule": new.schedule.model_dump(mode="json"),
        "overlap": new.schedule.overlap,
        "bundles": " ".join(sorted(set(bundles_of(spec).values()))),
        "state": ScheduleState.ACTIVE,
        "next_at": cron.check(new.schedule, read_now(session)),
        "skipped": 0,
        "refused": 0,
        "idempotency_key": None if new.keyed is None else new.keyed.key,
        "fingerprint": None if new.keyed is None else new.keyed.fingerprint,
    }
    insert = upsert(session, Schedule).on_conflict_do_nothing(index_elements=["owner", "idempotency_key"])
    if session.execute(insert.returning(Schedule.id), values).first() is None:
        return None
    return session.get_one(Schedule, schedule_id)


def _find_readable(session: Session, schedule_id: str, caller: Caller) -> Schedule:
    if not is_id(schedule_id, "sch"):
        raise NotFound(f"there is no schedule {schedule_id[:100]!r}")
    query = select(Schedule).where(Schedule.id == schedule_id, access.match_readable(caller, Schedule))
    if (row := session.scalars(query).first()) is None:
        raise NotFound(f"there is no schedule {schedule_id}")
    return row


def _lock_changeable(session: Session, schedule_id: str, caller: Caller) -> Schedule:
    query = select(Schedule).where(Schedule.id == schedule_id, access.changeable(caller, Schedule)).with_for_update()
    row = session.scalars(query.execution_options(populate_existing=True)).first()
    if row is None:
        owner = _find_readable(session, schedule_id, caller).owner
        raise Forbidden(f"schedule {schedule_id} belongs to {owner}: only its owner and administrators may do this")
    return row


def _view_of(row: Schedule) -> ScheduleView:
    return ScheduleView(**_values_of(row), spec=parse_spec(row.spec))


def _values_of(row: Schedule) -> dict[str, Any]:
    run, error, reason = None, None, None
    if row.last_job_id is not None and row.last_due_at is not None:
        run = ScheduledRun(job_id=row.last_job_id, due_at=to_time(row.last_due_at))
    if row.last_error is not None:
        error = RefusedRun.model_validate({**row.last_error, "at": to_time(row.last_error["at"])})
    if row.reason_code is not None and row.reason_message is not None:
        reason = Reason(code=row.reason_code, message=row.reason_message)
    return {
        "id": row.id,
        "name": row.name,
        "owner": row.owner,
        "visibility": row.visibility,
        "schedule": read_schedule(row),
        "state": ScheduleState(row.state),
        "status_reason": reason,
        "next_at": None if row.next_at is None else to_time(row.next_at),
        "last_run": run,
        "skipped": row.skipped,
        "last_error": error,
        "created_at": to_time(row.created_at),
    }

"""What is due of schedules: the next run, or the cancel of a run that a newer one has replaced."""

from typing import Any

from sqlalchemy import case, exists, or_, select, update
from sqlalchemy.orm import Session

from store.db.database import now_us
from store.schedules import cron
from store.schedules import rows as schedules
from store.schedules.facts import Due
from store.tables import Job, Schedule
from torchyard.contract.errors import InvalidSpec, TorchyardError
from torchyard.contract.job import JobState, Reason
from torchyard.contract.schedules import ScheduleState

MOST_REFUSED = 10
"""After so many refusals in a row, a schedule is paused."""
_UNKNOWN = "the run could not be submitted: the log of the controller says why"
_ENDED = Reason("ended", "no time of it is left before its `until`")
_LIVE = tuple(state for state in JobState if not state.terminal)
_RUNS_STILL = exists().where(Job.id == Schedule.last_job_id, Job.state.in_(_LIVE))
_IS_DUE = (Schedule.next_at <= now_us()) & or_(Schedule.overlap != "queue", ~_RUNS_STILL)


def some(session: Session, *, limit: int) -> list[Due]:
    """Returns what is due, the oldest first."""
    query = select(Schedule.id, Schedule.replaced).where(or_(_IS_DUE, Schedule.replaced.is_not(None)))
    return [Due(*row) for row in session.execute(query.order_by(Schedule.next_at).limit(limit))]


def lock_due(session: Session, schedule_id: str) -> tuple[Schedule, bool] | None:
    """Returns a schedule whose next run is due, locked, and whether the run before goes on.

    None if no run is due any more, or another controller has locked it.
    """
    query = select(Schedule, case((_RUNS_STILL, 1), else_=0)).where(Schedule.id == schedule_id, _IS_DUE)
    locked = query.with_for_update(skip_locked=True, of=Schedule).execution_options(populate_existing=True)
    row = session.execute(locked).first()
    return None if row is None else (row[0], bool(row[1]))


def note_run(session: Session, row: Schedule, job_id: str, *, replaces: bool) -> None:
    """Notes that the job is the run that is due. `replaces`: the run before is to be cancelled."""
    replaced = {"replaced": row.last_job_id} if replaces else {}
    ran = {"last_job_id": job_id, "last_due_at": row.next_at, "refused": 0, "last_error": None}
    _go_on(session, row, **ran, **replaced)


def note_skipped(session: Session, row: Schedule) -> None:
    """Notes that no run is submitted for the time that is due."""
    _go_on(session, row, skipped=Schedule.skipped + 1)


def note_refused(session: Session, row: Schedule, error: Exception) -> None:
    """Notes why the run that is due was refused. After `MOST_REFUSED` in a row, pauses the schedule."""
    known = isinstance(error, TorchyardError)
    code = error.code if known else "internal"
    message = _message(error) if known else _UNKNOWN
    told: dict[str, Any] = {"last_error": {"code": code, "message": message, "at": schedules.now(session)}}
    if row.refused + 1 >= MOST_REFUSED:
        reason = Reason("refused", f"{MOST_REFUSED} runs in a row were refused: {message}")
        _set(session, row, refused=row.refused + 1, **told, **_stopped(ScheduleState.PAUSED, reason))
    else:
        _go_on(session, row, refused=row.refused + 1, **told)


def note_failure(session: Session, schedule_id: str) -> None:
    """Notes that what is due could not be done, and is tried again: once, and not at each attempt."""
    row = session.scalars(select(Schedule).where(Schedule.id == schedule_id).with_for_update()).first()
    if row is not None and (row.last_error or {}).get("message") != _UNKNOWN:
        _set(session, row, last_error={"code": "internal", "message": _UNKNOWN, "at": schedules.now(session)})


def lock_replaced(session: Session, schedule_id: str) -> Schedule | None:
    """Returns a schedule of which a run is to be cancelled, locked; None if that is done, or another one does it."""
    query = select(Schedule).where(Schedule.id == schedule_id, Schedule.replaced.is_not(None))
    locked = query.with_for_update(skip_locked=True).execution_options(populate_existing=True)
    return session.scalars(locked).first()


def note_cancelled(session: Session, row: Schedule) -> None:
    """Notes that the job that a run has replaced was cancelled."""
    _set(session, row, replaced=None)


def _go_on(session: Session, row: Schedule, **values: Any) -> None:
    """Sets when the next run is due: of the times that went by meanwhile, none is."""
    _set(session, row, **values, **_next(row, max(schedules.now(session), row.next_at or 0)))


def _next(row: Schedule, after: int) -> dict[str, Any]:
    try:
        next_at = cron.next_after(schedules.schedule_of(row), after)
    except InvalidSpec as error:  # this host's time zones or cron texts are other ones
        return _stopped(ScheduleState.PAUSED, Reason("refused", _message(error)))
    return _stopped(ScheduleState.ENDED, _ENDED) if next_at is None else {"next_at": next_at}


def _set(session: Session, row: Schedule, **values: Any) -> None:
    change = update(Schedule).where(Schedule.id == row.id).values(**values)
    session.execute(change, execution_options={"synchronize_session": False})


def _stopped(state: ScheduleState, reason: Reason) -> dict[str, Any]:
    return {"state": state, "next_at": None, "reason_code": reason.code, "reason_message": reason.message}


def _message(error: TorchyardError) -> str:
    fields = "; ".join(f"{each.field}: {each.message}" if each.field else each.message for each in error.errors)
    return f"{error.message}: {fields}" if fields else error.message

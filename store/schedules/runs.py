"""What is due of schedules: the next run, or the cancel of a run that a newer one has replaced.

Several controllers may do it at the same moment: each row is locked, and who finds it locked goes on with the next.
"""

import contextlib
from dataclasses import dataclass
from functools import partial
import logging
from typing import Any

from sqlalchemy import case, exists, or_, select, update
from sqlalchemy.orm import Session

from store.db.database import now_us
from store.jobs import savepoints, stop
from store.jobs import submit as submissions
from store.jobs.submission import ScheduledRun, Submission, Submitted
from store.schedules import cron, schedules
from store.tables import Job, Schedule
from store.team import users
from torchyard.contract.errors import Conflict, InvalidSpec, NotFound, TorchyardError, Unavailable
from torchyard.contract.schedules import ScheduleState
from torchyard.contract.spec.spec import parse_spec
from torchyard.contract.states import JobState, Reason

MOST_REFUSED = 10
"""After so many refusals in a row, a schedule is paused."""
_UNKNOWN = "the run could not be submitted: the log of the controller says why"
_ENDED = Reason("ended", "no time of it is left before its `until`")
_LIVE = tuple(state for state in JobState if not state.terminal)
_RUNS_STILL = exists().where(Job.id == Schedule.last_job_id, Job.state.in_(_LIVE))
_IS_DUE = (Schedule.next_at <= now_us()) & or_(Schedule.overlap != "queue", ~_RUNS_STILL)

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Due:
    """What a controller is to do for a schedule: submit a run, or cancel the job that a run has replaced."""

    schedule_id: str
    replaced: str | None


def list_due(session: Session, *, limit: int) -> list[Due]:
    """Returns what is due, the oldest first."""
    query = select(Schedule.id, Schedule.replaced).where(or_(_IS_DUE, Schedule.replaced.is_not(None)))
    return [Due(*row) for row in session.execute(query.order_by(Schedule.next_at).limit(limit))]


def do_due(session: Session, due: Due) -> bool:
    """Does what is due of a schedule. Returns False if another controller does it, or has done it.

    A run that is refused is noted on the schedule. Raises Unavailable.
    """
    if due.replaced is not None:
        return _cancel_replaced(session, due.schedule_id)
    locked = _lock_due(session, due.schedule_id)
    if locked is not None:
        _run_due(session, *locked)
    return locked is not None


def note_failure(session: Session, schedule_id: str) -> None:
    """Notes that what is due could not be done, and is tried again: once, and not at each attempt."""
    row = session.scalars(select(Schedule).where(Schedule.id == schedule_id).with_for_update()).first()
    if row is not None and (row.last_error or {}).get("message") != _UNKNOWN:
        _set_columns(
            session, row, last_error={"code": "internal", "message": _UNKNOWN, "at": schedules.read_now(session)}
        )


def _lock_due(session: Session, schedule_id: str) -> tuple[Schedule, bool] | None:
    """Returns a schedule whose next run is due, locked, and whether the run before goes on.

    None if no run is due any more, or another controller has locked it.
    """
    query = select(Schedule, case((_RUNS_STILL, 1), else_=0)).where(Schedule.id == schedule_id, _IS_DUE)
    locked = query.with_for_update(skip_locked=True, of=Schedule).execution_options(populate_existing=True)
    row = session.execute(locked).first()
    return None if row is None else (row[0], bool(row[1]))


def _run_due(session: Session, row: Schedule, runs_still: bool) -> None:
    if runs_still and row.overlap == "skip":
        return _go_on(session, row, skipped=Schedule.skipped + 1)
    run = savepoints.attempt(session, partial(_submit, session, row))
    if isinstance(run, Unavailable):
        raise run
    if isinstance(run, Exception):
        error = run if isinstance(run, TorchyardError) else repr(run)
        logger.warning("schedule %s of %s: a run was refused: %s", row.id, row.owner, error)
        return _note_refused(session, row, run)
    return _note_run(session, row, run.job.id, replaces=runs_still and row.overlap == "cancel")


def _submit(session: Session, row: Schedule) -> Submitted:
    """Submits the run that is due for the owner, as they may submit it now."""
    caller = users.act_for(session, row.owner)
    assert row.next_at is not None
    run = ScheduledRun(row.id, row.next_at)
    return submissions.submit(session, Submission(parse_spec(row.spec), caller, "private", run=run))


def _note_run(session: Session, row: Schedule, job_id: str, *, replaces: bool) -> None:
    """Notes that the job is the run that is due. `replaces`: the run before is to be cancelled."""
    replaced = {"replaced": row.last_job_id} if replaces else {}
    ran = {"last_job_id": job_id, "last_due_at": row.next_at, "refused": 0, "last_error": None}
    _go_on(session, row, **ran, **replaced)


def _note_refused(session: Session, row: Schedule, error: Exception) -> None:
    """Notes why the run that is due was refused. After `MOST_REFUSED` in a row, pauses the schedule."""
    known = isinstance(error, TorchyardError)
    code = error.code if known else "internal"
    message = _message_of(error) if known else _UNKNOWN
    noted: dict[str, Any] = {"last_error": {"code": code, "message": message, "at": schedules.read_now(session)}}
    if row.refused + 1 >= MOST_REFUSED:
        reason = Reason("refused", f"{MOST_REFUSED} runs in a row were refused: {message}")
        _set_columns(session, row, refused=row.refused + 1, **noted, **_columns_of_stop(ScheduleState.PAUSED, reason))
    else:
        _go_on(session, row, refused=row.refused + 1, **noted)


def _cancel_replaced(session: Session, schedule_id: str) -> bool:
    """Cancels the earlier run of a schedule that a newer one has replaced. Returns False if another one does it."""
    query = select(Schedule).where(Schedule.id == schedule_id, Schedule.replaced.is_not(None))
    locked = query.with_for_update(skip_locked=True).execution_options(populate_existing=True)
    row = session.scalars(locked).first()
    if row is None or row.replaced is None:
        return False
    with contextlib.suppress(Conflict, NotFound):  # it has ended, or was deleted
        stop.request_cancel(session, row.replaced)
    _set_columns(session, row, replaced=None)
    return True


def _go_on(session: Session, row: Schedule, **values: Any) -> None:
    """Sets when the next run is due: of the times that went by meanwhile, none is."""
    _set_columns(session, row, **values, **_plan_next(row, max(schedules.read_now(session), row.next_at or 0)))


def _plan_next(row: Schedule, after: int) -> dict[str, Any]:
    try:
        next_at = cron.next_after(schedules.read_schedule(row), after)
    except InvalidSpec as error:  # this host's time zones or cron texts are other ones
        return _columns_of_stop(ScheduleState.PAUSED, Reason("refused", _message_of(error)))
    return _columns_of_stop(ScheduleState.ENDED, _ENDED) if next_at is None else {"next_at": next_at}


def _set_columns(session: Session, row: Schedule, **values: Any) -> None:
    change = update(Schedule).where(Schedule.id == row.id).values(**values)
    session.execute(change, execution_options={"synchronize_session": False})


def _columns_of_stop(state: ScheduleState, reason: Reason) -> dict[str, Any]:
    return {"state": state, "next_at": None, "reason_code": reason.code, "reason_message": reason.message}


def _message_of(error: TorchyardError) -> str:
    fields = "; ".join(f"{each.field}: {each.message}" if each.field else each.message for each in error.errors)
    return f"{error.message}: {fields}" if fields else error.message

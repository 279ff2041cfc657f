"""Changes of schedules, by who asks and by controllers. Each is one transaction. All of them raise Unavailable."""

import contextlib
from functools import partial
import logging

from sqlalchemy.orm import Session

from store.jobs import owners, savepoints, stop, submissions
from store.jobs.idempotency import KeyTaken
from store.jobs.submission_facts import ScheduledRun, Submission, Submitted
from store.notifications import targets
from store.schedules import due_schedules
from store.schedules import rows as schedules
from store.schedules.facts import Due, NewSchedule, ScheduleFacts
from store.store import Store
from store.tables import Schedule
from store.team import audit
from store.team.callers_facts import Caller
from torchyard.contract.errors import Conflict, NotFound, TorchyardError, Unavailable
from torchyard.contract.schedules import SchedulePatch
from torchyard.contract.spec import parse_spec

logger = logging.getLogger(__name__)


def add(store: Store, new: NewSchedule) -> tuple[ScheduleFacts, bool]:
    """Stores a schedule. Returns it, and whether an earlier request with the same key has made it.

    The targets in `notify` are checked now, as no run is refused for one that is missing; the rest at each run.
    Raises InvalidSpec, IdempotencyMismatch, and Conflict if the owner has too many.
    """
    while True:
        try:
            with store.write("change") as session:
                return _add(session, new)
        except KeyTaken:
            continue


def change(store: Store, schedule_id: str, patch: SchedulePatch, *, caller: Caller) -> ScheduleFacts:
    """Does what `store.schedules.rows.change` does."""
    with store.write("change") as session:
        changed = schedules.change(session, schedule_id, patch, caller)
        audit.add(session, caller, "schedule.change", schedule_id)
        return changed


def remove(store: Store, schedule_id: str, *, caller: Caller) -> None:
    """Deletes a schedule. Its runs stay. Raises NotFound and Forbidden."""
    with store.write("change") as session:
        schedules.remove(session, schedule_id, caller)
        audit.add(session, caller, "schedule.delete", schedule_id)


def do(store: Store, due: Due) -> bool:
    """Does what is due of a schedule. Returns False if another controller does it, or has done it."""
    if due.replaced is not None:
        return _cancel(store, due.schedule_id)
    with store.write("run_schedule") as session:
        found = due_schedules.lock_due(session, due.schedule_id)
        if found is not None:
            _run(session, found)
        return found is not None


def note_failure(store: Store, schedule_id: str) -> None:
    """Has the schedule say that what was due of it failed, until a run is accepted."""
    with store.write("run_schedule") as session:
        due_schedules.note_failure(session, schedule_id)


def _add(session: Session, new: NewSchedule) -> tuple[ScheduleFacts, bool]:
    known = None if new.keyed is None else schedules.answered(session, new.keyed)
    if known is not None:
        return known, True
    targets.check(session, new.caller.name, new.spec)
    made = schedules.add(session, new)
    audit.add(session, new.caller, "schedule.add", made.id)
    return made, False


def _run(session: Session, due: tuple[Schedule, bool]) -> None:
    row, runs_still = due
    if runs_still and row.overlap == "skip":
        return due_schedules.note_skipped(session, row)
    made = savepoints.attempt(session, partial(_submitted, session, row))
    if isinstance(made, Unavailable):
        raise made
    if isinstance(made, Exception):
        told = made if isinstance(made, TorchyardError) else repr(made)
        logger.warning("schedule %s of %s: a run was refused: %s", row.id, row.owner, told)
        return due_schedules.note_refused(session, row, made)
    return due_schedules.note_run(session, row, made.job.id, replaces=runs_still and row.overlap == "cancel")


def _submitted(session: Session, row: Schedule) -> Submitted:
    """Submits the run that is due for the owner, as they may submit it now."""
    caller = owners.acting(session, row.owner)
    assert row.next_at is not None
    run = ScheduledRun(row.id, row.next_at)
    return submissions.store_one(session, Submission(parse_spec(row.spec), caller, "private", run=run))


def _cancel(store: Store, schedule_id: str) -> bool:
    """Cancels the earlier run of a schedule, as a newer one has taken its place."""
    with store.write("run_schedule") as session:
        row = due_schedules.lock_replaced(session, schedule_id)
        if row is None or row.replaced is None:
            return False
        with contextlib.suppress(Conflict, NotFound):  # it has ended, or was deleted
            stop.request_cancel(session, row.replaced)
        due_schedules.note_cancelled(session, row)
        return True

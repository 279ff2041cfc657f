"""Jobs: the only function that changes a state, and what others change of a row."""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Row, bindparam, case, select, update
from sqlalchemy.orm import Session

from store.announcement import announcement_of
from store.db.database import now_us
from store.db.prepared import Prepared
from store.jobs import events as job_events
from store.jobs import initial_files
from store.jobs.shapes import shape_of
from store.notifications import signals
from store.queue import forecasts, reservations
from store.queue.line.conditions import in_line
from store.queue.line.entries import entry_of, is_in_line
from store.queue.line_facts import Left
from store.sweeps import trials
from store.tables import HELD, Allocation, Attempt, Job, Worker
from torchyard.contract.attempts.pausing import PausePoint
from torchyard.contract.errors import NotFound
from torchyard.contract.jobs.notes import MOST_SEARCHED
from torchyard.contract.notifications.kinds import EventKind
from torchyard.contract.states import AT_RUNG, JobState, Reason, sources

WAITED_US = case((Job.not_before == HELD, Job.waited_us), else_=Job.waited_us + now_us() - Job.lined_at)
"""How long a queued job has waited in the line in all."""
# Built once: building a statement costs more than executing it.
_HOLDERS = (
    select(Allocation.worker_id, Allocation.device, Attempt.job_id)
    .join(Attempt, Attempt.id == Allocation.attempt_id)
    .where(Allocation.released_at.is_(None))
)
_HOLDERS_ON = Prepared(_HOLDERS.where(Allocation.worker_id == bindparam("worker")))
_EVENTS = {
    JobState.RUNNING: EventKind.JOB_STARTED,
    JobState.SUCCEEDED: EventKind.JOB_SUCCEEDED,
    JobState.FAILED: EventKind.JOB_FAILED,
    JobState.CANCELLED: EventKind.JOB_CANCELLED,
    JobState.PAUSED: EventKind.JOB_PAUSED,
    JobState.QUEUED: EventKind.JOB_REQUEUED,
}
"""What targets are notified of when a job enters a state."""


SEARCHED = ("id", "owner", "name", "labels", "notes")
"""The columns that `search_text` reads."""


def search_text(job: Mapping[str, Any]) -> str:
    """Returns what a search reads, without regard to case: id, owner, name, the labels' values, and of the notes their
    beginning alone, as the indexes of lists have this text.
    """
    notes = (job.get("notes") or "")[:MOST_SEARCHED]
    parts = (job["id"], job["owner"], job["name"], *job["labels"].values(), *([notes] if notes else []))
    return "\x1f".join(parts).casefold()


def require(session: Session, job_id: str) -> Job:
    """Returns the job. Raises NotFound."""
    job = session.get(Job, job_id)
    if job is None:
        raise NotFound(f"there is no job {job_id}")
    return job


def queued(session: Session, *, limit: int | None = None) -> list[tuple[str, int]]:
    """Returns id and priority of the jobs in the line, in the order in which they start."""
    query = select(Job.id, Job.priority).where(in_line())
    return [(row.id, row.priority) for row in session.execute(query.order_by(Job.priority.desc(), Job.id).limit(limit))]


def transition(
    session: Session,
    job_id: str,
    target: JobState,
    *,
    reason: Reason,
    detail: dict[str, Any] | None = None,
    locked: Job | None = None,
    **values: Any,
) -> Job | None:
    """Moves a job to `target` by compare-and-set and inserts the event, in the caller's transaction.

    `detail` goes into the event beside `from`, `to` and `reason`; `values` are further columns of the row, of which
    `ran_us` must be a number. `locked`: the job, if `lock` has returned it in this transaction. Returns the updated
    job, or None if its state does not allow the move: the caller's claim is stale.
    """
    job = locked or lock(session, job_id)
    if job is None or job.state not in sources(target):
        return None
    source = JobState(job.state)
    values |= _line_values(job, source, target, ran_us=values.get("ran_us", job.ran_us))
    moved_row = _move(session, job, source, target, reason=reason, values=values)
    if moved_row is None:
        return None
    moved, has_listener = moved_row
    if source is JobState.QUEUED:
        claimed = target is JobState.STARTING and values.get("devices")
        reservations.free_place_of(session, job_id, starts_on=claimed[0]["worker"] if claimed else None)
        if target is JobState.PAUSED:
            forecasts.forget(session, job_id)
    job_events.add_state(
        session,
        job_id,
        seq=moved.position,
        source=source,
        target=target,
        reason=reason,
        attempt=moved.attempt or None,
        detail=detail,
    )
    if has_listener:
        _signal(session, moved, source, target)
    _follow(session, moved, target)
    return moved


def _move(
    session: Session, job: Job, source: JobState, target: JobState, *, reason: Reason, values: Mapping[str, Any]
) -> Row[*tuple[Job, bool]] | None:
    """Returns the moved job and whether a target may want to know of it; None if it is not in `source` any more."""
    return session.execute(
        update(Job)
        .where(Job.id == job.id, Job.state == source)
        .values(
            state=target,
            version=Job.version + 1,
            position=Job.position + 1,
            reason_code=reason.code,
            reason_message=reason.message,
            reason_since=now_us(),
            finished_at=now_us() if target.terminal else None,
            **values,
        )
        .returning(Job, signals.HAS_LISTENER)
        .execution_options(populate_existing=True, synchronize_session=False),
        signals.listener_values(job),
    ).first()


def _signal(session: Session, moved: Job, source: JobState, state: JobState) -> None:
    """Stores for targets what the job has become."""
    kind = _EVENTS.get(state)
    is_resumed = (source, state) == (JobState.PAUSED, JobState.QUEUED)  # by its user, or its sweep
    if kind is not None and not is_resumed and moved.reason_code != AT_RUNG:  # nobody has to do anything there
        signals.add_state(session, moved, kind)


def _follow(session: Session, moved: Job, state: JobState) -> None:
    """Does what follows from the new state of a job."""
    if state.terminal:
        initial_files.release(session, moved)
    if moved.sweep_id is not None:
        trials.follow_job(session, moved)
    if state.terminal or state is JobState.PAUSED:
        announcement_of(session).wake_controller()
    announce(session, moved)


def _line_values(job: Job, source: JobState, target: JobState, *, ran_us: int) -> dict[str, Any]:
    """Returns the columns of a moved job by which the line has it."""
    values: dict[str, Any] = {"lined_at": now_us()} if JobState.QUEUED in {source, target} else {}
    if source is JobState.QUEUED:
        values["waited_us"] = WAITED_US
        if target is JobState.STARTING and job.started_at is None:
            values["waited_first_us"] = WAITED_US
    if target is JobState.QUEUED:
        values["shape"] = shape_of(job.owner, job.spec, needs=job.needs, ran_us=ran_us)
    return values


def set_reason(session: Session, job_id: str, state: JobState, reason: Reason) -> None:
    """Stores another reason why the job is in `state`. Does nothing if it is in another one."""
    changed = session.scalars(
        update(Job)
        .where(Job.id == job_id, Job.state == state)
        .values(
            version=Job.version + 1,
            reason_code=reason.code,
            reason_message=reason.message,
            reason_since=now_us(),
        )
        .returning(Job)
        .execution_options(populate_existing=True, synchronize_session=False)
    ).first()
    if changed is not None:
        announce(session, changed)


def announce(session: Session, job: Any) -> None:
    """Records in the session's announcement that the job has changed, and where it stands in the line.

    `job` is its row, or its columns.
    """
    if is_in_line(job):
        announcement_of(session).enqueue(job.id, entry_of(job))
    else:
        announcement_of(session).dequeue(job.id, Left(job.lined_at))


def lock(session: Session, job_id: str) -> Job | None:
    """Returns the job's row, locked until the transaction ends; None if there is none."""
    return session.scalars(
        select(Job).where(Job.id == job_id).with_for_update().execution_options(populate_existing=True)
    ).first()


def set_waiting_reason(session: Session, job_ids: Sequence[str], reason: Reason) -> None:
    """Stores why queued jobs do not start. Writes only rows whose reason changes."""
    session.execute(
        update(Job)
        .where(Job.id.in_(job_ids), Job.state == JobState.QUEUED, Job.reason_message != reason.message)
        .values(reason_code=reason.code, reason_message=reason.message, reason_since=now_us())
    )


def set_waiting_reasons(session: Session, reasons: Mapping[Reason, Sequence[str]]) -> None:
    """Stores why queued jobs do not start: the jobs of each reason. Writes only rows whose reason changes."""
    concerned = [job_id for job_ids in reasons.values() for job_id in job_ids]
    # Always in one order: two workers that wait for each other's rows would deadlock.
    session.execute(select(Job.id).where(Job.id.in_(concerned)).order_by(Job.id).with_for_update())
    for reason, job_ids in reasons.items():
        set_waiting_reason(session, job_ids, reason)


def pause_at(session: Session, job_ids: Sequence[str], point: PausePoint) -> None:
    """Has new jobs pause by themselves."""
    change = update(Job).where(Job.id.in_(job_ids)).values(pause_at=point.document)
    session.execute(change, execution_options={"synchronize_session": False})


def set_card(session: Session, job_id: str, card: dict[str, Any]) -> None:
    """Stores the model card. The version rises if it changes."""
    if session.execute(select(Job.card).where(Job.id == job_id)).scalar_one() != card:
        session.execute(update(Job).where(Job.id == job_id).values(version=Job.version + 1, card=card))


def device_holders(session: Session) -> dict[tuple[str, str], str]:
    """Returns the job id that holds each device, by `(worker id, device uuid)`."""
    return {(row.worker_id, row.device): row.job_id for row in session.execute(_HOLDERS)}


def device_holders_on(session: Session, worker_id: str) -> dict[str, str]:
    """Returns the job id that holds each of the worker's devices that are held, by device uuid."""
    return {device: job_id for _, device, job_id in _HOLDERS_ON.read(session, {"worker": worker_id})}


def worker_name(session: Session, worker_id: str) -> str:
    """Returns the name of an existing worker."""
    return session.execute(select(Worker.name).where(Worker.id == worker_id)).scalar_one()

"""Jobs that do not use their GPUs, by the reports of their workers: they are warned, and then asked to stop."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal, NamedTuple

from sqlalchemy import Row, Select, case, select, update
from sqlalchemy.orm import Session

from store.attempts.facts import LEASE
from store.db.database import in_us, now_us
from store.db.stored_spec import StoredSpec
from store.jobs import events as job_events
from store.jobs import jobs, stop
from store.notifications import signals
from store.tables import Attempt, AttemptUse, Job
from torchyard.contract.attempts.idleness import SHORTEST_IDLE_TIMEOUT, warning
from torchyard.contract.states import JobState

_MICROSECOND = timedelta(microseconds=1)
_SOONEST_US = in_us(SHORTEST_IDLE_TIMEOUT) // 2
"""No job is warned before."""
# A recipe has set up when it tells of its first step; of a script nobody knows.
_SET_UP = case((Job.trainer == "script", Attempt.running_at), else_=Attempt.stepped_at)
_UNUSED = case((AttemptUse.idle_since > _SET_UP, AttemptUse.idle_since), else_=_SET_UP)
_SINCE = case((AttemptUse.input_at > _UNUSED, AttemptUse.input_at), else_=_UNUSED)
_STOPS = (Job.cancel_requested_at, Job.pause_requested_at, Job.preempt_requested_at, Job.idle_requested_at)


class Due(NamedTuple):
    """What a job that has been idle for long gets."""

    what: Literal["warning", "stop"]
    timeout: timedelta
    """How long it may be idle."""


@dataclass(frozen=True, kw_only=True)
class IdleJob:
    """A job whose attempt has used none of its GPUs for a while. Times are microseconds, by the database's clock."""

    job_id: str
    attempt: int
    devices: int
    now: int
    since: int
    """Since when its GPUs are idle, and no user sends anything to a program in it; it had set up by then."""
    warned_at: int | None
    """The time of the job's last warning. A warning from before `since` was about an earlier idle time."""
    idle_timeout: timedelta | None
    """That of its spec."""

    @property
    def lasted(self) -> timedelta:
        return (self.now - self.since) * _MICROSECOND

    def timeout(self, maximum: timedelta | None) -> timedelta | None:
        """Returns how long it may be idle; None: for ever. `maximum`: the operator's."""
        return min((limit for limit in (self.idle_timeout, maximum) if limit is not None), default=None)

    def left(self, timeout: timedelta) -> timedelta:
        """Returns how long it may be idle yet: from its warning on, half of the timeout at least."""
        warned_ago = timedelta(0)
        if self._is_warned and self.warned_at is not None:
            warned_ago = (self.now - self.warned_at) * _MICROSECOND
        return max(timeout - self.lasted, timeout / 2 - warned_ago)

    def due(self, maximum: timedelta | None) -> Due | None:
        """Returns what it is time for: a warning at half of the timeout, and the stop when no time is left."""
        timeout = self.timeout(maximum)
        if timeout is None:
            return None
        if not self._is_warned:
            return Due("warning", timeout) if self.lasted >= timeout / 2 else None
        return Due("stop", timeout) if self.left(timeout) <= timedelta(0) else None

    @property
    def _is_warned(self) -> bool:
        return self.warned_at is not None and self.warned_at >= self.since


def find_idle(session: Session, job_id: str | None = None) -> list[IdleJob]:
    """Returns the running jobs that may be warned or stopped as idle, or this one.

    A worker that was silent for a lease has reported nothing of now, and a job that is asked to stop is left alone.
    """
    query = _select_idle() if job_id is None else _select_idle().where(Job.id == job_id)
    return [_idle_job(row) for row in session.execute(query)]


def follow(session: Session, job_id: str, *, maximum: timedelta | None) -> None:
    """Warns the job, or asks it to stop, if it is still time for that. `maximum`: the operator's.

    Repeating it changes nothing, as both are stored.
    """
    job = jobs.lock(session, job_id)
    idle = next(iter(find_idle(session, job_id)), None)
    due = None if idle is None else idle.due(maximum)
    if job is None or idle is None or due is None:
        return
    if due.what == "warning":
        _warn(session, job, idle, due.timeout)
    else:
        stop.request_idle_stop(session, job, timeout=due.timeout)


def _warn(session: Session, job: Job, idle: IdleJob, timeout: timedelta) -> None:
    text = warning(devices=idle.devices, lasted=idle.lasted, left=idle.left(timeout), timeout=timeout)
    data = {"level": "warning", "text": text, "cause": "idle"}
    job_events.append(session, job.id, type="message", attempt=idle.attempt, data=data)
    signals.add_warnings(session, job, [text])
    _note_warning(session, job.id)


def _note_warning(session: Session, job_id: str) -> None:
    """Stores that the job is warned now."""
    open_one = select(Attempt.id).where(Attempt.job_id == job_id, Attempt.ended_at.is_(None)).scalar_subquery()
    change = update(AttemptUse).where(AttemptUse.attempt_id == open_one).values(warned_at=now_us())
    session.execute(change, execution_options={"synchronize_session": False})


def _select_idle() -> Select[str, int, list[Any], Any, int, Any, int | None]:
    query = select(
        Job.id,
        Attempt.number,
        Job.devices,
        Job.spec["idle_timeout"].label("idle_timeout"),
        now_us().label("now"),
        _SINCE.label("since"),
        AttemptUse.warned_at,
    )
    query = query.join(Attempt, Attempt.id == AttemptUse.attempt_id).join(Job, Job.id == Attempt.job_id)
    return query.where(
        Attempt.ended_at.is_(None),
        Job.state == JobState.RUNNING,
        *(request.is_(None) for request in _STOPS),
        AttemptUse.idle_since.is_not(None),
        AttemptUse.seen_at > now_us() - in_us(LEASE),
        now_us() - _SINCE >= _SOONEST_US,
    ).order_by(Job.id)


def _idle_job(row: Row[str, int, list[Any], Any, int, Any, int | None]) -> IdleJob:
    written = {} if row.idle_timeout is None else {"idle_timeout": row.idle_timeout}
    return IdleJob(
        job_id=row.id,
        attempt=row.number,
        devices=len(row.devices),
        now=row.now,
        since=row.since,
        warned_at=row.warned_at,
        idle_timeout=StoredSpec.model_validate(written).idle_timeout,
    )

"""What a finished job keeps of its log and its events, by age and by size, and what is known of run directories.

A log goes from its beginning, some chunks in each transaction; the last of these says in the job's events what is gone.
Positions are never used again: whoever reads on from behind what is gone gets the rest.
"""

from collections.abc import Collection, Generator, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import timedelta

from sqlalchemy import ColumnElement, LargeBinary, and_, cast, delete, exists, false, func, select, update
from sqlalchemy.orm import Session

from store import jobs
from store.database import Database, now_us
from store.tables import Attempt, Job, JobEvent, LogChunk
from torchyard.schema import format_duration

_JOBS_LOOKED_AT = 500
_CHUNKS_AT_ONCE = 200
_EVENTS_AT_ONCE = 2000
_ALL = 2**62


@dataclass(frozen=True)
class Keep:
    """What stays of a finished job. None: all of it."""

    logs: timedelta | None = None
    """After the job's end."""
    log_bytes: int | None = None
    events: timedelta | None = None
    """After the job's end. Changes of its state stay, and so does what the service itself says of it."""


@dataclass(frozen=True)
class KnownJob:
    """A job for whose attempts there may be run directories."""

    finished: bool
    attempts: dict[int, int | None]
    """By number: how long ago the attempt ended, in microseconds; None while it is open."""


def trim(database: Database, keep: Keep) -> Generator[None]:
    """One pass over all finished jobs, which removes what is not to be kept. Raises Unavailable.

    Yields after each transaction, each of which is short; whoever stops there leaves the rest to a later pass. Any
    number of workers may do it at once.
    """
    last: str | None = "" if keep != Keep() else None
    while last is not None:
        with database.read() as session:
            due, last = _due(session, keep, after=last)
        yield
        for job in due:
            if job.log_to is not None:
                yield from _cut_log(database, job.id, to=job.log_to, why=job.why)
            if job.events:
                yield from _remove_events(database, job.id, why=_age_said("they are", keep.events))


def known(session: Session, job_ids: Collection[str]) -> dict[str, KnownJob]:
    """Those of `job_ids` that there are."""
    query = select(Job.id, Job.finished_at).where(Job.id.in_(job_ids))
    found = {row.id: KnownJob(row.finished_at is not None, {}) for row in session.execute(query)}
    age = (now_us() - Attempt.ended_at).label("age")
    for row in session.execute(select(Attempt.job_id, Attempt.number, age).where(Attempt.job_id.in_(job_ids))):
        found[row.job_id].attempts[row.number] = row.age
    return found


@dataclass(frozen=True)
class _Due:
    id: str
    log_to: int | None
    """The bytes of the log that stay; None: nothing is to be done about it."""
    events: bool
    why: str


def _due(session: Session, keep: Keep, *, after: str) -> tuple[list[_Due], str | None]:
    """Of the next jobs behind `after`: those with something to remove, and the last one looked at; None at the end."""
    old_events = exists().where(JobEvent.job_id == Job.id, _removable()) if keep.events is not None else false()
    age = now_us() - Job.finished_at
    query = select(Job.id, Job.log_lines, Job.log_cut_to, age.label("age"), old_events.label("old_events"))
    query = query.where(Job.id > after, Job.finished_at.is_not(None)).order_by(Job.id).limit(_JOBS_LOOKED_AT)
    rows = session.execute(query).all()
    due: list[_Due] = []
    for row in rows:
        log_to, why = keep.log_bytes, f"the last {keep.log_bytes} bytes of it are kept"
        if keep.logs is not None and row.age >= _us(keep.logs):
            log_to, why = 0, _age_said("it is", keep.logs)
        if not row.log_lines or (log_to is not None and _is_cut(row.log_cut_to, log_to)):
            log_to = None
        events = keep.events is not None and bool(row.old_events) and row.age >= _us(keep.events)
        if log_to is not None or events:
            due.append(_Due(row.id, log_to, events, why))
    return due, rows[-1].id if len(rows) == _JOBS_LOOKED_AT else None


def _cut_log(database: Database, job_id: str, *, to: int, why: str) -> Generator[None]:
    with database.read() as session:
        first = _first_kept(session, job_id, to) if to else _ALL
    more = True
    while more:
        with database.write("cut") as session:
            more = _remove_lines(session, job_id, first_kept=first, to=to, why=why)
        yield


def _first_kept(session: Session, job_id: str, size: int) -> int:
    """The number of the first line of the newest chunks that together have no more than `size` bytes: at least one."""
    if session.get_bind().dialect.name == "postgresql":
        length = func.octet_length(LogChunk.text)
    else:
        length = func.length(cast(LogChunk.text, LargeBinary))
    query = select(LogChunk.first, length.label("length")).where(LogChunk.job_id == job_id)
    first, left = _ALL, size
    newest_first = query.order_by(LogChunk.first.desc()).execution_options(yield_per=64)
    with closing(session.execute(newest_first)) as chunks:
        for chunk in chunks:
            left -= chunk.length
            if left < 0 and first != _ALL:
                break
            first = chunk.first
    return first


def _remove_lines(session: Session, job_id: str, *, first_kept: int, to: int, why: str) -> bool:
    """True where more is left to remove. Otherwise it notes that the log is cut."""
    job = jobs.lock(session, job_id)
    if job is None or _is_cut(job.log_cut_to, to):
        return False  # it was deleted, or another worker has done it
    query = select(LogChunk.first, LogChunk.count).where(LogChunk.job_id == job_id, LogChunk.first < first_kept)
    rows = session.execute(query.order_by(LogChunk.first).limit(_CHUNKS_AT_ONCE + 1)).all()
    gone = rows[:_CHUNKS_AT_ONCE]
    if gone:
        old = and_(LogChunk.job_id == job_id, LogChunk.first <= gone[-1].first)
        session.execute(delete(LogChunk).where(old), execution_options={"synchronize_session": False})
    if len(rows) > len(gone):
        return True
    session.execute(update(Job).where(Job.id == job_id).values(log_cut_to=to))
    # Whoever went before removed only so much that something was left for this transaction.
    if gone:
        last = gone[-1].first + gone[-1].count - 1
        _say(session, job_id, f"lines 1 to {last} of the log were removed: {why}")
    return False


def _remove_events(database: Database, job_id: str, *, why: str) -> Generator[None]:
    more = True
    while more:
        with database.write("thin") as session:
            more = _remove_oldest_events(session, job_id, why=why)
        yield


def _remove_oldest_events(session: Session, job_id: str, *, why: str) -> bool:
    """True where more is left to remove."""
    if jobs.lock(session, job_id) is None:
        return False
    wanted = and_(JobEvent.job_id == job_id, _removable())
    query = select(JobEvent.seq).where(wanted).order_by(JobEvent.seq).limit(_EVENTS_AT_ONCE + 1)
    rows: Sequence[int] = session.scalars(query).all()
    gone = rows[:_EVENTS_AT_ONCE]
    if gone:
        old = delete(JobEvent).where(wanted, JobEvent.seq <= gone[-1])
        session.execute(old, execution_options={"synchronize_session": False})
    if len(rows) > len(gone):
        return True
    if gone:
        _say(session, job_id, f"what its attempts told as events, up to number {gone[-1]}, was removed: {why}")
    return False


def _removable() -> ColumnElement[bool]:
    """What attempts have told: the service's own messages belong to none."""
    return and_(JobEvent.type != "state", JobEvent.attempt.is_not(None))


def _say(session: Session, job_id: str, text: str) -> None:
    jobs.add_event(session, job_id, type="message", attempt=None, data={"level": "info", "text": text})


def _is_cut(done: int | None, to: int) -> bool:
    return done is not None and done <= to


def _age_said(what: str, age: timedelta | None) -> str:
    return f"{what} kept for {format_duration(age or timedelta())} after the end of a job"


def _us(duration: timedelta) -> int:
    return duration // timedelta(microseconds=1)

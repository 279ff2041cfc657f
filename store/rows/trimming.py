"""What a finished job keeps of its log and its events, by age and by size.

Both go from their beginning, some rows in each transaction; the last of these says in the job's events what is gone,
and notes in the job's row how far it was cut, so that nobody looks at it again. Positions are never used again:
whoever reads on from behind what is gone gets the rest.
"""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from sqlalchemy import (
    Column,
    ColumnElement,
    LargeBinary,
    Row,
    Table,
    Text,
    and_,
    cast,
    delete,
    false,
    func,
    or_,
    select,
    true,
    update,
)
from sqlalchemy.orm import Session

from store.db.database import in_us, now_us
from store.db.tables import Base, Job
from store.rows import jobs

_JOBS_AT_ONCE = 500
_ROWS_AT_ONCE = 200
PAST_END = 2**62


@dataclass(frozen=True)
class TrimLimits:
    """What stays of a finished job. None: all of it."""

    logs: timedelta | None = None
    """After the job's end."""
    log_bytes: int | None = None
    events: timedelta | None = None
    """After the job's end. Changes of its state stay, and so does what the service itself says of it."""
    event_bytes: int | None = None


@dataclass(frozen=True)
class TrimTarget:
    """Of the rows of a job: those of one table that may go."""

    purpose: str
    """Of the transactions."""
    table: Table
    place: Column[int]
    content: Column[Any]
    removable: ColumnElement[bool]
    cut_to: Column[int]
    """The bytes of it that were left at the last cut."""
    last: ColumnElement[int]
    """The number of the last thing in a row."""
    gone: str
    """What is said, with that number."""


_JOBS, _CHUNKS, _EVENTS = (Base.metadata.tables[name].c for name in ("jobs", "log_chunks", "job_events"))
LOG_OF_JOB = TrimTarget(
    purpose="trim_log",
    table=Base.metadata.tables["log_chunks"],
    place=_CHUNKS.first,
    content=_CHUNKS.text,
    removable=true(),
    cut_to=_JOBS.log_cut_to,
    last=_CHUNKS.first + _CHUNKS.count - 1,
    gone="lines 1 to {} of the log were removed",
)
EVENTS_OF_ATTEMPTS = TrimTarget(
    purpose="trim_events",
    table=Base.metadata.tables["job_events"],
    place=_EVENTS.seq,
    content=_EVENTS.data,
    # The service's own messages belong to no attempt.
    removable=and_(_EVENTS.type != "state", _EVENTS.attempt.is_not(None)),
    cut_to=_JOBS.events_cut_to,
    last=_EVENTS.seq,
    gone="what its attempts told as events, up to number {}, was removed",
)


def jobs_to_trim(
    session: Session, kind: TrimTarget, *, age: timedelta | None, size: int | None
) -> Sequence[Row[str, bool]]:
    """Finished jobs that are not cut as far as they are to be, and whether that is for their age."""
    old = Job.finished_at <= now_us() - in_us(age) if age is not None else false()
    large = kind.cut_to > size if size is not None else false()
    # By the index it comes past those of which nothing is left to cut, however many they are.
    left = kind.cut_to > (0 if age is not None else size)
    query = select(Job.id, old.label("old")).where(Job.finished_at.is_not(None), left, or_(old, large))
    return session.execute(query.limit(_JOBS_AT_ONCE)).all()


def first_kept(session: Session, kind: TrimTarget, job_id: str, size: int) -> int:
    """The place of the first of the newest rows that together have no more than `size` bytes: at least one."""
    if session.get_bind().dialect.name == "postgresql":
        length = func.octet_length(cast(kind.content, Text))
    else:
        length = func.length(cast(kind.content, LargeBinary))
    query = select(kind.place.label("place"), length.label("length")).where(_of(kind, job_id))
    first, left = PAST_END, size
    newest_first = query.order_by(kind.place.desc()).execution_options(yield_per=64)
    with closing(session.execute(newest_first)) as rows:
        for row in rows:
            left -= row.length
            if left < 0 and first != PAST_END:
                break
            first = row.place
    return first


def remove_oldest(session: Session, kind: TrimTarget, job_id: str, *, first_kept: int, to: int, why: str) -> bool:
    """True where more is left to remove. Otherwise it notes that the job is cut."""
    job = jobs.lock(session, job_id)
    if job is None or getattr(job, kind.cut_to.key) <= to:
        return False  # it was deleted, or another worker has done it
    query = select(kind.place.label("place"), kind.last.label("last")).where(_of(kind, job_id), kind.place < first_kept)
    rows = session.execute(query.order_by(kind.place).limit(_ROWS_AT_ONCE + 1)).all()
    gone = rows[:_ROWS_AT_ONCE]
    if gone:
        session.execute(delete(kind.table).where(_of(kind, job_id), kind.place <= gone[-1].place))
    if len(rows) > len(gone):
        return True
    session.execute(update(Job).where(Job.id == job_id).values({kind.cut_to.key: to}))
    # Whoever went before removed only so much that something was left for this transaction.
    if gone:
        data = {"level": "info", "text": f"{kind.gone.format(gone[-1].last)}: {why}"}
        jobs.add_event(session, job_id, type="message", attempt=None, data=data)
    return False


def _of(kind: TrimTarget, job_id: str) -> ColumnElement[bool]:
    return and_(kind.table.c.job_id == job_id, kind.removable)

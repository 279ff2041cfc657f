"""Trims the logs and events of finished jobs by age and by size.

The oldest rows go first, some in each transaction. The last transaction adds an event that says what was removed, and
notes in the job's row how far it was trimmed, so that it is not read again. Positions are never reused: a reader that
continues after removed rows gets the rest.
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
from store.jobs import events as job_events
from store.jobs import jobs
from store.tables import Base, Job

_JOBS_PER_PASS = 500
ROWS_PER_TRANSACTION = 200
PAST_END = 2**62
"""Sentinel: a position after every row."""


@dataclass(frozen=True)
class TrimTarget:
    """The rows of one table that may be removed from a finished job."""

    purpose: str
    """Purpose of the transactions."""
    table: Table
    key: Column[int]
    """Orders the rows of a job."""
    content: Column[Any]
    removable: ColumnElement[bool]
    trimmed_to: Column[int]
    """Bytes that were left after the last trim."""
    last: ColumnElement[int]
    """The number of the last item in a row."""
    notice: str
    """Text of the event, formatted with that number."""


_JOBS, _CHUNKS, _EVENTS = (Base.metadata.tables[name].c for name in ("jobs", "log_chunks", "job_events"))
LOG_OF_JOB = TrimTarget(
    purpose="trim_log",
    table=Base.metadata.tables["log_chunks"],
    key=_CHUNKS.first,
    content=_CHUNKS.text,
    removable=true(),
    trimmed_to=_JOBS.log_cut_to,
    last=_CHUNKS.first + _CHUNKS.count - 1,
    notice="lines 1 to {} of the log were removed",
)
EVENTS_OF_ATTEMPTS = TrimTarget(
    purpose="trim_events",
    table=Base.metadata.tables["job_events"],
    key=_EVENTS.seq,
    content=_EVENTS.data,
    # The service's own messages belong to no attempt.
    removable=and_(_EVENTS.type != "state", _EVENTS.attempt.is_not(None)),
    trimmed_to=_JOBS.events_cut_to,
    last=_EVENTS.seq,
    notice="events of its attempts up to number {} were removed",
)


def list_jobs_to_trim(
    session: Session, target: TrimTarget, *, age: timedelta | None, size: int | None
) -> Sequence[Row[str, bool]]:
    """Returns finished jobs that must be trimmed further, each with whether its age requires it."""
    old = Job.finished_at <= now_us() - in_us(age) if age is not None else false()
    large = target.trimmed_to > size if size is not None else false()
    # The index skips jobs of which nothing is left to trim, however many there are.
    left = target.trimmed_to > (0 if age is not None else size)
    query = select(Job.id, old.label("old")).where(Job.finished_at.is_not(None), left, or_(old, large))
    return session.execute(query.limit(_JOBS_PER_PASS)).all()


def find_first_kept(session: Session, target: TrimTarget, job_id: str, size: int) -> int:
    """Returns the key of the first row to keep: the newest rows of at most `size` bytes together, at least one row."""
    if session.get_bind().dialect.name == "postgresql":
        length = func.octet_length(cast(target.content, Text))
    else:
        length = func.length(cast(target.content, LargeBinary))
    query = select(target.key.label("key"), length.label("length")).where(_is_removable(target, job_id))
    first, left = PAST_END, size
    newest_first = query.order_by(target.key.desc()).execution_options(yield_per=64)
    with closing(session.execute(newest_first)) as rows:
        for row in rows:
            left -= row.length
            if left < 0 and first != PAST_END:
                break
            first = row.key
    return first


def remove_oldest(session: Session, target: TrimTarget, job_id: str, *, first_kept: int, to: int, why: str) -> bool:
    """Removes some rows before the first kept. Returns True if more are left, else stores that the job is trimmed."""
    job = jobs.lock(session, job_id)
    if job is None or getattr(job, target.trimmed_to.key) <= to:
        return False  # deleted, or trimmed by another worker
    query = select(target.key.label("key"), target.last.label("last")).where(
        _is_removable(target, job_id), target.key < first_kept
    )
    rows = session.execute(query.order_by(target.key).limit(ROWS_PER_TRANSACTION + 1)).all()
    removed = rows[:ROWS_PER_TRANSACTION]
    if removed:
        session.execute(delete(target.table).where(_is_removable(target, job_id), target.key <= removed[-1].key))
    if len(rows) > len(removed):
        return True
    session.execute(update(Job).where(Job.id == job_id).values({target.trimmed_to.key: to}))
    # Earlier transactions have always left a row for the last one, which writes the event.
    if removed:
        data = {"level": "info", "text": f"{target.notice.format(removed[-1].last)}: {why}"}
        job_events.append(session, job_id, type="message", attempt=None, data=data)
    return False


def _is_removable(target: TrimTarget, job_id: str) -> ColumnElement[bool]:
    return and_(target.table.c.job_id == job_id, target.removable)

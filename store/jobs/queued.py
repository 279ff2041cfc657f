"""The queue: queued jobs of all users in the order in which they start."""

from typing import Any

from sqlalchemy import Row, bindparam, select
from sqlalchemy.orm import Session

from store import pages
from store.jobs import reasons
from store.jobs.facts import QueueCursor, QueuedJob, QueuePage
from store.pages import FactPage
from store.queue import estimates
from store.queue.credits import credits
from store.queue.line.conditions import in_line, is_queued
from store.queue.line.entries import standing_of
from store.queue.line.line import line_of
from store.queue.line.order import cursor_of
from store.queue.line_facts import Credits, Standing
from store.tables import Job

_SHOWN = (Job.id, Job.owner, Job.visibility, Job.name, Job.priority, Job.not_before, Job.created_at)
_QUEUED = (
    select(*_SHOWN, Job.state, Job.shape, Job.device_request, Job.reason_code, Job.reason_message, Job.reason_since)
    .add_columns(Job.spec["resources"].label("resources"))
    .where(in_line(), Job.id.in_(bindparam("ids", expanding=True)))
)
_ANY = select(Job.id).where(is_queued()).limit(1)


def list_queue(session: Session, *, limit: int, after: QueueCursor | None = None) -> QueuePage:
    """Returns queued jobs in the order of the line.

    With `after`, only jobs after that position, which need not be occupied any more.
    """
    line, credit = line_of(session), credits(session)
    page, rows = _read_page(session, credit, limit=limit, after=after)
    if len(rows) < len(page.items):
        # Redis is not as this transaction sees the jobs: SQL answers, and they are compared afterwards.
        line.distrust([job.member.id for job in page.items if job.member.id not in rows])
        page, rows = _read_page(session, credit, limit=limit, after=after)
    total = sum(line.buckets().values())
    if not rows:
        return QueuePage([], page.has_more, None, total)
    first = line.positions(credit, page.items[:1])[page.items[0].member.id]
    why = reasons.displayed(session, rows.values())
    positions = {job.member.id: position for position, job in enumerate(page.items, start=first)}
    expected = estimates.of_jobs(session, rows.values(), positions)
    queued = [
        QueuedJob(
            **{column.key: getattr(rows[job_id], column.key) for column in _SHOWN},
            in_line=position,
            resources=rows[job_id].resources,
            reason=why[job_id],
            estimate=expected.get(job_id),
        )
        for job_id, position in positions.items()
    ]
    return QueuePage(queued, page.has_more, cursor_of(page.items[-1], credit), total)


def check(session: Session) -> None:
    """Reads from the queue. Raises Unavailable if the database does not answer."""
    session.execute(_ANY)


def _read_page(
    session: Session, credit: Credits, *, limit: int, after: QueueCursor | None
) -> tuple[FactPage[Standing], dict[str, Row[Any]]]:
    """Returns a page of the line, and the rows of those of its jobs that are queued just so, by id."""
    page = pages.first(line_of(session).page(credit, after=after, limit=limit + 1), limit)
    rows = {row.id: row for row in session.execute(_QUEUED, {"ids": [job.member.id for job in page.items]})}
    # Neither with another priority, nor as a job of another owner.
    same = {job.member.id for job in page.items if job.member.id in rows and standing_of(rows[job.member.id]) == job}
    return page, {job_id: rows[job_id] for job_id in rows if job_id in same}

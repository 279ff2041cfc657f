"""What is told of jobs: each function reads one snapshot. All of them raise Unavailable.

What a caller may not read is not found: NotFound is raised, also for what is no job's id.
"""

from collections.abc import Collection, Sequence

from sqlalchemy import select
from sqlalchemy.orm import Session

from store.attempts import history as attempt_facts
from store.attempts import stacks as rows
from store.db.database import Snapshots
from store.ids import is_id
from store.jobs import columns as job_columns
from store.jobs import events as job_events
from store.jobs import listing, show, timeline
from store.jobs.facts import (
    Head,
    JobCounts,
    JobFacts,
    JobList,
    ListCursor,
    ListedAttempt,
    ListedJob,
    QueueCursor,
    QueuePage,
    VisibleJobs,
)
from store.output.facts import EventFacts, Stacks
from store.pages import FactPage
from store.queue.line.conditions import is_queued
from store.tables import Job
from store.team import access
from store.team.callers import SERVICE, Caller
from torchyard.contract.columns import Column
from torchyard.contract.errors import NotFound
from torchyard.contract.filters import JobQuery, JobSort


def find(
    store: Snapshots,
    where: JobQuery,
    *,
    caller: Caller,
    limit: int,
    sort: JobSort,
    after: ListCursor | None,
    counts: bool = False,
    columns: Sequence[Column] = (),
) -> JobList:
    """Returns jobs of the caller's lists. `counts`: also counts them, for the filter without its states.

    `columns`: also returns these values of the jobs.
    """
    with store.read() as session:
        page = listing.jobs(session, where, caller=caller, limit=limit, sort=sort, after=after)
        counted = _counts(session, where, caller) if counts else None
        return JobList(page, job_columns.of_listed(session, page.items, columns, caller=caller), counted)


def counts(store: Snapshots, where: JobQuery, *, caller: Caller) -> JobCounts:
    """Returns how many jobs of the caller's lists are in each state, for the filter without its states."""
    with store.read() as session:
        return _counts(session, where, caller)


def get(store: Snapshots, job_id: str, *, caller: Caller) -> JobFacts:
    """Returns a job."""
    with store.read() as session:
        return show.readable(session, job_id, caller)


def check_readable(store: Snapshots, job_id: str, *, caller: Caller) -> None:
    """Returns if the caller may read the job."""
    with store.read() as session:
        access.readable_job(session, job_id, caller)


def version(store: Snapshots, job_id: str, *, caller: Caller) -> int:
    """Returns the version of a job."""
    with store.read() as session:
        return access.readable_job(session, job_id, caller, Job.version)[0]


def events(store: Snapshots, job_id: str, *, caller: Caller, after: int, limit: int) -> FactPage[EventFacts]:
    """Returns events of a job, as `store.jobs.events.page` does."""
    with store.read() as session:
        access.readable_job(session, job_id, caller)
        return job_events.page(session, job_id, after=after, limit=limit)


def attempts(store: Snapshots, job_id: str, *, caller: Caller, after: int, limit: int) -> FactPage[ListedAttempt]:
    """Returns attempts of a job that are numbered above `after`, oldest first."""
    with store.read() as session:
        access.readable_job(session, job_id, caller)
        return attempt_facts.list_attempts(session, job_id, caller=caller, after=after, limit=limit)


def stacks(store: Snapshots, job_id: str, *, caller: Caller) -> Stacks:
    """Returns the stacks of the ranks of a job. Raises as `store.attempts.stacks.request` does."""
    with store.read() as session:
        return rows.read(session, job_id, caller)


def queue(store: Snapshots, *, limit: int, after: QueueCursor | None) -> QueuePage:
    """Returns queued jobs of all users in the order in which they start."""
    with store.read() as session:
        return listing.queue(session, limit=limit, after=after)


_ANY = select(Job.id).where(is_queued()).limit(1)


def check_queue(store: Snapshots) -> None:
    """Returns if the database answers."""
    with store.read() as session:
        session.execute(_ANY)


def heads(store: Snapshots, job_ids: Sequence[str], *, caller: Caller) -> dict[str, Head]:
    """Returns how much each of the jobs has stored, in this order."""
    with store.read() as session:
        found = timeline.heads(session, [job_id for job_id in job_ids if is_id(job_id, "job")], caller=caller)
    for job_id in job_ids:
        if job_id not in found:
            raise NotFound(f"there is no job {job_id!r}")
    return {job_id: found[job_id] for job_id in job_ids}


def visible(store: Snapshots, job_ids: Collection[str], *, caller: Caller) -> VisibleJobs:
    """Returns which of the jobs the caller may read, and which exist."""
    with store.read() as session:
        seen = timeline.heads(session, job_ids, caller=caller)
        return VisibleJobs(frozenset(seen), frozenset(timeline.heads(session, job_ids)))


def changes(
    store: Snapshots, *, heads: Collection[str], listed: Collection[str]
) -> tuple[dict[str, Head], list[ListedJob]]:
    """Returns the heads of some jobs and what lists tell of others, as far as they exist, for every caller."""
    with store.read() as session:
        found = timeline.heads(session, heads, caller=SERVICE) if heads else {}
        return found, listing.some(session, listed)


def _counts(session: Session, where: JobQuery, caller: Caller) -> JobCounts:
    return listing.counts(session, where.model_copy(update={"state": None}), caller=caller)

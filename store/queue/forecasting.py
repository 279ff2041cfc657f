"""What a replay of the line needs: the cluster with the first waiting jobs, in a number of statements that is fixed."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta

from sqlalchemy import select
from sqlalchemy.orm import Session

from scheduling.snapshot import Waiting
from store.db.prepared import Prepared, among, texts
from store.queue import planning, waiting
from store.queue.credits import credits
from store.queue.estimates_facts import MOST_ESTIMATED, Seen
from store.queue.line.line import line_of
from store.queue.line.order import cursor_of
from store.queue.line_facts import Bucket, Credits, Member, Standing
from store.tables import Base, Job
from torchyard.contract.cluster.devices import DeviceReport

_MOST_PAGES = 3
"""Of the line. Jobs that are held back after a failure stand in it, and are not looked at."""
_ATTEMPTS = Prepared(select(Job.id, Job.attempt).where(among(Base.metadata.tables["jobs"].c.id, "ids")))


def first_in_line(
    session: Session,
    *,
    observed: Mapping[str, Sequence[DeviceReport]],
    max_stop_grace: timedelta,
    newcomer: Waiting | None = None,
    most: int = MOST_ESTIMATED,
) -> Seen:
    """Returns the cluster with the first `most` jobs of the line that wait, and the newcomer, if there is one.

    `observed`: devices as they are now, by worker. `newcomer`: a job that may not be stored yet.
    """
    bucket = None if newcomer is None else Bucket(newcomer.owner, newcomer.resources.device, newcomer.priority)
    credit = credits(session, () if bucket is None else (bucket,))
    firsts, last = _first_waiting(session, credit, most=most)
    seen = planning.snapshot(session, firsts, observed, max_stop_grace=max_stop_grace, newcomer=newcomer)
    known = {job.id for job in seen.line}
    left_out = max(0, sum(line_of(session).buckets().values()) - len(known))
    attempts = _next_attempts(session, known)
    if newcomer is None or bucket is None or newcomer.id in known:
        return Seen(seen, left_out, attempts)
    own = Standing(bucket, Member(newcomer.id, newcomer.submitted))
    is_behind = last is not None and _stands_behind(own, last, credit)
    return Seen(replace(seen, line=(*seen.line, newcomer)), left_out, attempts, is_behind)


def _first_waiting(session: Session, credit: Credits, *, most: int) -> tuple[list[Waiting], Standing | None]:
    """Returns the first waiting jobs, and where the last of them stands if others may follow."""
    line, jobs = line_of(session), list[Waiting]()
    last: Standing | None = None
    for _ in range(_MOST_PAGES):
        wanted = most - len(jobs)
        page = line.page(credit, after=None if last is None else cursor_of(last, credit), limit=wanted)
        rows = waiting.standing(session, [job.member.id for job in page])
        jobs += waiting.understood(session, [rows[job.member.id] for job in page if job.member.id in rows])
        if len(page) < wanted:
            return jobs, None
        last = page[-1]
        if len(jobs) == most:
            break
    return jobs, last


def _next_attempts(session: Session, job_ids: Collection[str]) -> dict[str, int]:
    if not job_ids:
        return {}
    return {job_id: attempt + 1 for job_id, attempt in _ATTEMPTS.read(session, {"ids": texts(job_ids)})}


def _stands_behind(job: Standing, other: Standing, credit: Credits) -> bool:
    mine, theirs = cursor_of(job, credit), cursor_of(other, credit)
    return (mine.over_quota, -mine.priority, mine.key, mine.job_id) > (
        theirs.over_quota,
        -theirs.priority,
        theirs.key,
        theirs.job_id,
    )

"""The line as the rows have it."""

from collections import defaultdict
from collections.abc import Generator, Iterable, Mapping, Sequence
import heapq
from itertools import accumulate
from typing import Any

from sqlalchemy import bindparam, func, literal_column, select, text, tuple_
from sqlalchemy.orm import Session, aliased

from scheduling.snapshot import Group
from store.jobs.tables import IN_LINE
from store.queue.line import order
from store.queue.line.conditions import in_line, waits
from store.queue.line.source import Mark, Priced
from store.queue.line_facts import Bucket, Credits, Member, Standing
from store.tables import Job

_PER_STATEMENT = 100
"""Buckets that one statement reads. SQLite takes 500 parts."""
_LEAST_OF_BUCKET = 4
"""Jobs that are read of each bucket at first. With one, each further job of many owners would cost a statement."""


def _first_of_each_group() -> Any:
    """Builds a loose index scan, which jumps from the first job of each group to the first of the next."""
    this, other = aliased(Job), aliased(Job)
    groups = select(other.id).order_by(other.shape, other.priority, other.created_at, other.id).limit(1)
    heads = select(groups.where(waits(other), other.shape > "").scalar_subquery().label("id"))
    heads = heads.cte("heads", recursive=True)
    # Two steps, because SQLite reads a whole group to find the next pair of shape and priority.
    higher = groups.where(waits(other), other.shape == this.shape, other.priority > this.priority)
    others = groups.where(waits(other), other.shape > this.shape)
    step = func.coalesce(higher.correlate(this).scalar_subquery(), others.correlate(this).scalar_subquery())
    heads = heads.union_all(select(step).select_from(heads).join(this, this.id == heads.c.id))
    return select(Job.shape, Job.priority, *_MEMBER).join(heads, heads.c.id == Job.id)


# Built once, because each pass over the line executes them.
_MEMBER = (Job.id, Job.created_at)
_HEADS = _first_of_each_group()
_NEXT = (
    select(*_MEMBER)
    .where(waits(), Job.shape == bindparam("shape"), Job.priority == bindparam("priority"))
    .where(tuple_(Job.created_at, Job.id) > tuple_(bindparam("submitted"), bindparam("id")))
    .order_by(Job.created_at, Job.id)
    .limit(bindparam("limit"))
)
_BUCKET = (Job.priority, Job.owner, Job.device_request)
_BUCKETS = select(*_BUCKET, func.count(literal_column("*"))).where(in_line()).group_by(*_BUCKET)
# Texts, because a statement of a hundred parts costs more to build than to execute. Parts differ by a number alone.
_OF_BUCKET = (
    f"state = 'queued' AND {IN_LINE}"
    " AND priority = :priority{0} AND owner = :owner{0} AND device_request = :request{0}"
)
_COUNT = (
    f"SELECT {{0}}, count(*) FROM jobs WHERE {_OF_BUCKET}"  # noqa: S608
    " AND (created_at, id) >= (:from{0}, :first{0}) AND (created_at, id) < (:submitted{0}, :id{0})"
)
_SOME = (
    f"SELECT * FROM (SELECT {{0}} AS number, created_at, id FROM jobs WHERE {_OF_BUCKET}"  # noqa: S608
    " AND (created_at, id) > (:submitted{0}, :id{0}) ORDER BY created_at, id LIMIT :most) AS part{0}"
)


class SqlLine:
    """Reads in the session's transaction. Every method raises what a session does."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def heads(self) -> Mapping[Group, Member]:
        rows = self._session.execute(_HEADS)
        return {(row.shape, row.priority): Member(row.id, row.created_at) for row in rows}

    def successors(self, group: Group, after: Member, *, limit: int) -> Sequence[Member]:
        shape, priority = group
        where = {"shape": shape, "priority": priority, "submitted": after.submitted, "id": after.id, "limit": limit}
        return [Member(job_id, submitted) for job_id, submitted in self._session.execute(_NEXT, where)]

    def buckets(self) -> Mapping[Bucket, int]:
        rows = self._session.execute(_BUCKETS)
        return {Bucket(owner, request, priority): count for priority, owner, request, count in rows}

    def page(self, classes: Sequence[Sequence[Priced]], *, after: Mark | None, limit: int) -> Sequence[Standing]:
        page: list[Standing] = []
        for buckets in classes:
            if len(page) < limit:
                page += self._first(buckets, after, limit=limit - len(page))
            after = None
        return page

    def positions(self, credits: Credits, jobs: Sequence[Standing]) -> Sequence[int]:
        counts = self.buckets()
        classes = order.classes_of(counts, credits)
        beside = dict(classes)
        asked: dict[order.Class, list[Standing]] = defaultdict(list)
        for job in jobs:
            asked[order.class_of(job.bucket, credits)].append(job)
        positions_by_id: dict[str, int] = {}
        for name_asked, some in asked.items():
            ahead = sum(counts[priced.bucket] for name, buckets in classes if name < name_asked for priced in buckets)
            before = self._before(beside.get(name_asked, []), [order.mark_of(job, credits) for job in some])
            positions_by_id |= {job.member.id: ahead + count + 1 for job, count in zip(some, before, strict=True)}
        return [positions_by_id[job.member.id] for job in jobs]

    def _before(self, buckets: Sequence[Priced], marks: Sequence[Mark]) -> Sequence[int]:
        """Returns for each mark how many jobs of the buckets are before it. Each job is counted once."""
        order = sorted(range(len(marks)), key=marks.__getitem__)
        asked = [
            (index, priced, before) for priced in buckets for before, index in zip((None, *order), order, strict=False)
        ]
        counts = dict.fromkeys(order, 0)
        for first in range(0, len(asked), _PER_STATEMENT):
            part = asked[first : first + _PER_STATEMENT]
            statement = " UNION ALL ".join(_COUNT.format(number) for number in range(len(part)))
            values = [
                {
                    **_of_bucket(number, priced, marks[index]),
                    **_from(number, priced, None if before is None else marks[before]),
                }
                for number, (index, priced, before) in enumerate(part)
            ]
            for number, count in self._session.execute(text(statement), _merged(values)):
                counts[part[number][0]] += count
        counted = dict(zip(order, accumulate(counts[index] for index in order), strict=True))
        return [counted[index] for index in range(len(marks))]

    def _first(self, buckets: Sequence[Priced], after: Mark | None, *, limit: int) -> list[Standing]:
        """Returns the first jobs of buckets of one class, and reads little more of each than it needs."""
        at_once = min(limit, max(_LEAST_OF_BUCKET, 1 + 2 * limit // len(buckets))) if buckets else 0
        streams: list[Generator[tuple[Mark, Standing]]] = []
        for first in range(0, len(buckets), _PER_STATEMENT):
            part = buckets[first : first + _PER_STATEMENT]
            rows = self._some([(priced, after) for priced in part], most=at_once)
            streams += [self._stream(priced, rows[index], at_once) for index, priced in enumerate(part)]
        merged = heapq.merge(*streams, key=lambda item: item[0])
        return [standing for _, (_, standing) in zip(range(limit), merged, strict=False)]

    def _stream(self, priced: Priced, members: list[Member], at_once: int) -> Generator[tuple[Mark, Standing]]:
        while members:
            for member in members:
                yield priced.mark(member), Standing(priced.bucket, member)
            complete = len(members) < at_once
            at_once *= 2
            members = [] if complete else self._some([(priced, priced.mark(members[-1]))], most=at_once)[0]

    def _some(self, asked: Sequence[tuple[Priced, Mark | None]], *, most: int) -> list[list[Member]]:
        """Returns the next jobs of each bucket, up to `most`."""
        statement = " UNION ALL ".join(_SOME.format(number) for number in range(len(asked)))
        values = [_of_bucket(number, priced, mark) for number, (priced, mark) in enumerate(asked)]
        by_bucket: list[list[Member]] = [[] for _ in asked]
        for index, submitted, job_id in self._session.execute(text(statement), {**_merged(values), "most": most}):
            by_bucket[index].append(Member(job_id, submitted))
        for members in by_bucket:
            members.sort(key=lambda member: member.order)
        return by_bucket


def _of_bucket(number: int, priced: Priced, mark: Mark | None) -> dict[str, Any]:
    """Returns the parameters of one part of a statement: the bucket, and the mark as a job of it would have it."""
    bucket = priced.bucket
    submitted, job_id = _member_at(priced, mark)
    return {
        f"owner{number}": bucket.owner,
        f"request{number}": bucket.request,
        f"priority{number}": bucket.priority,
        f"submitted{number}": submitted,
        f"id{number}": job_id,
    }


def _from(number: int, priced: Priced, mark: Mark | None) -> dict[str, Any]:
    """Returns the parameters of a part that begins at a mark."""
    submitted, job_id = _member_at(priced, mark)
    return {f"from{number}": submitted, f"first{number}": job_id}


def _member_at(priced: Priced, mark: Mark | None) -> Mark:
    """Returns the submission time and the id of the job at the mark. Without a mark: values below those of all jobs."""
    return (-1, "") if mark is None else (mark[0] + priced.credit, mark[1])


def _merged(values: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    return {name: value for one in values for name, value in one.items()}

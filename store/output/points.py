"""Reads stored points: of a job in the order of its timeline, and of series, of a long one in parts."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from heapq import heappop, heappush, heapreplace
from typing import NamedTuple, TypeAlias

from sqlalchemy import Row, bindparam, func, select
from sqlalchemy.orm import Session

from store.db.prepared import Prepared
from store.output import joining
from store.output.facts import END, MetricPoint
from store.output.metrics import BATCH, POINT
from store.tables import Base, PointChunk, Series

_PAGE = 32
"""Chunks per read of a timeline."""
PART_POINTS = 100_000
"""Points after which the read of a long series ends a part."""
_ROWS, _MOST_ROWS = 100, 2_000
"""Rows that are read at once: at first, as a chunk of a long series may have thousands of points, and of short ones."""
_SHORT = POINT.size * 64
_Chunk: TypeAlias = "Row[int, int, int, bytes, bytes | None, str]"

# Columns of the table, not of the class: rows then do not pass through the ORM.
_CHUNKS = Base.metadata.tables["point_chunks"].c
_OF_ONE = _CHUNKS.series_id == bindparam("series"), _CHUNKS.first > bindparam("after")
_DATA = Prepared(select(_CHUNKS.data).where(*_OF_ONE).order_by(_CHUNKS.first))
_FIRST_OF = select(_CHUNKS.first).where(*_OF_ONE).order_by(_CHUNKS.first).offset(bindparam("skipped")).limit(1)
_ENDS = tuple(
    select(_CHUNKS.attempt).where(*_OF_ONE).order_by(order).limit(1) for order in (_CHUNKS.first, _CHUNKS.first.desc())
)


class TimelinePoint(NamedTuple):
    """A point at its position in the timeline. No two points of a job have the same."""

    position: int
    attempt: int
    point: MetricPoint


@dataclass
class StoredPoints:
    """Points of series in the order of the series' ids, and then in that in which they were stored."""

    series: list[int] = field(default_factory=list[int])
    attempts: list[int] = field(default_factory=list[int])
    data: list[bytes] = field(default_factory=list[bytes])
    """Packed: some points of a series and an attempt."""


def read_after(session: Session, job_id: str, position: int) -> Iterator[TimelinePoint]:
    """Yields the points after `position`, in order. Reads chunks as they are needed."""
    opened: list[tuple[TimelinePoint, Iterator[TimelinePoint]]] = []
    for chunk in _chunks(session, job_id, position):
        # Joined chunks overlap: one after the other is read from until the next one begins.
        yield from _before(chunk.first, opened)
        points = _points(chunk, position)
        if (point := next(points, None)) is not None:
            heappush(opened, (point, points))
    yield from _before(END, opened)


def read_part(
    session: Session, series: Sequence[int], stored: StoredPoints, *, after: int, attempt: int | None
) -> int | None:
    """Adds the points of the series, or of this attempt. Of one long series it reads a part, after a position.

    Returns where the rest begins, None where nothing is left.
    """
    if len(series) == 1:
        only = _only_attempt(session, series[0], after)
        if only is not None and attempt in {None, only}:
            return _read_data(session, series[0], stored, after=after, attempt=only)
    query = select(_CHUNKS.series_id, _CHUNKS.first, _CHUNKS.attempt, _CHUNKS.data)
    query = query.where(_CHUNKS.series_id.in_(series), _CHUNKS.first > after)
    ahead = 2 * _ROWS if len(series) > 1 else _ROWS
    query = query.order_by(_CHUNKS.series_id, _CHUNKS.first).execution_options(yield_per=ahead)
    if attempt is not None:
        query = query.where(_CHUNKS.attempt == attempt)
    size = 0
    with closing(session.connection().execute(query)) as rows:
        for some in rows.partitions():
            ids, firsts, numbers, data = zip(*some, strict=True)
            stored.series += ids
            stored.attempts += numbers
            stored.data += data
            size += sum(map(len, data))
            if len(series) == 1 and size >= PART_POINTS * POINT.size:
                return firsts[-1]
    return None


def _chunks(session: Session, job_id: str, position: int) -> Iterator[_Chunk]:
    """Yields the chunks that may have points after `position`, by their first positions."""
    first, last = PointChunk.first, PointChunk.last
    columns = (
        first,
        PointChunk.attempt,
        PointChunk.count.label("size"),
        PointChunk.data,
        PointChunk.places,
        Series.key,
    )
    query = select(*columns).join(Series, Series.id == PointChunk.series_id)
    query = query.where(PointChunk.job_id == job_id).order_by(first)
    # Chunks from `begin` on are read in order. Joined chunks that begin before it may reach beyond `position`, too.
    begin = session.scalar(select(func.max(first)).where(PointChunk.job_id == job_id, first <= position + 1)) or 0
    longest = joining.BLOCK + joining.LONG
    yield from session.execute(query.where(first < begin, last > position, last < begin + longest)).all()
    rows = session.execute(query.where(first >= begin).limit(_PAGE)).all()
    while rows:
        yield from rows
        after_last = query.where(first > rows[-1].first).limit(_PAGE)
        rows = session.execute(after_last).all() if len(rows) == _PAGE else []


def _before(position: int, opened: list[tuple[TimelinePoint, Iterator[TimelinePoint]]]) -> Iterator[TimelinePoint]:
    """Yields the points of the opened chunks before `position`, in order."""
    while opened and opened[0][0].position < position:
        point, points = opened[0]
        yield point
        if (following := next(points, None)) is None:
            heappop(opened)
        else:
            heapreplace(opened, (following, points))


def _points(chunk: _Chunk, position: int) -> Iterator[TimelinePoint]:
    """Yields the points of a chunk after `position`."""
    batches = [(chunk.first, chunk.size)] if chunk.places is None else BATCH.iter_unpack(chunk.places)
    data = memoryview(chunk.data)
    for first, count in batches:
        skipped = max(position + 1 - first, 0)
        batch = data[skipped * POINT.size : count * POINT.size] if skipped < count else data[:0]
        for at, (step, value, time) in enumerate(POINT.iter_unpack(batch), start=first + skipped):
            yield TimelinePoint(at, chunk.attempt, MetricPoint(chunk.key, step, value, time))
        data = data[count * POINT.size :]


def _only_attempt(session: Session, series: int, after: int) -> int | None:
    """Returns the attempt of all points of the series after a position; None if there are several, or no points."""
    connection, values = session.connection(), {"series": series, "after": after}
    # An attempt stores nothing any more when the next one has begun.
    first, last = (connection.scalar(query, values) for query in _ENDS)
    return first if first == last else None


def _read_data(session: Session, series: int, stored: StoredPoints, *, after: int, attempt: int) -> int | None:
    """Adds the points of a series, all of one attempt: it reads nothing but the points. Returns as `read_part`."""
    values = {"series": series, "after": after}
    chunks = size = 0
    ahead = _ROWS
    with _DATA.opened(session, values) as cursor:
        while size < PART_POINTS * POINT.size and (some := cursor.fetchmany(ahead)):
            data = b"".join([row[0] for row in some])
            stored.series.append(series)
            stored.attempts.append(attempt)
            stored.data.append(data)
            chunks += len(some)
            size += len(data)
            ahead = _MOST_ROWS if len(data) < _SHORT * len(some) else _ROWS
    if size < PART_POINTS * POINT.size:
        return None
    return session.connection().scalar(_FIRST_OF, {**values, "skipped": chunks - 1})

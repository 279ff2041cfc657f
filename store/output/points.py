"""Reads the points of a job in the order of its timeline."""

from collections.abc import Iterator
from heapq import heappop, heappush, heapreplace
from typing import NamedTuple, TypeAlias

from sqlalchemy import Row, func, select
from sqlalchemy.orm import Session

from store.output import joining
from store.output.facts import END, MetricPoint
from store.output.metrics import PLACE, POINT
from store.tables import PointChunk, Series

_PAGE = 32
"""Chunks per read."""
_Chunk: TypeAlias = "Row[int, int, int, bytes, bytes | None, str]"


class PlacedPoint(NamedTuple):
    """A point at its position in the timeline. No two points of a job have the same."""

    position: int
    attempt: int
    point: MetricPoint


def after(session: Session, job_id: str, position: int) -> Iterator[PlacedPoint]:
    """Yields the points after `position`, in order. Reads chunks as they are needed."""
    opened: list[tuple[PlacedPoint, Iterator[PlacedPoint]]] = []
    for chunk in _chunks(session, job_id, position):
        # Joined chunks overlap: one after the other is read from until the next one begins.
        yield from _before(chunk.first, opened)
        points = _points(chunk, position)
        if (point := next(points, None)) is not None:
            heappush(opened, (point, points))
    yield from _before(END, opened)


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


def _before(position: int, opened: list[tuple[PlacedPoint, Iterator[PlacedPoint]]]) -> Iterator[PlacedPoint]:
    """Yields the points of the opened chunks before `position`, in order."""
    while opened and opened[0][0].position < position:
        point, points = opened[0]
        yield point
        if (following := next(points, None)) is None:
            heappop(opened)
        else:
            heapreplace(opened, (following, points))


def _points(chunk: _Chunk, position: int) -> Iterator[PlacedPoint]:
    """Yields the points of a chunk after `position`."""
    places = [(chunk.first, chunk.size)] if chunk.places is None else PLACE.iter_unpack(chunk.places)
    data = memoryview(chunk.data)
    for first, count in places:
        skipped = max(position + 1 - first, 0)
        batch = data[skipped * POINT.size : count * POINT.size] if skipped < count else data[:0]
        for place, (step, value, time) in enumerate(POINT.iter_unpack(batch), start=first + skipped):
            yield PlacedPoint(place, chunk.attempt, MetricPoint(chunk.key, step, value, time))
        data = data[count * POINT.size :]

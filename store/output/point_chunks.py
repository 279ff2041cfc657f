"""Reads the stored points of series, of a long one in parts."""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field

from sqlalchemy import bindparam, select
from sqlalchemy.orm import Session

from store.db.prepared import Prepared
from store.output.metrics import POINT
from store.tables import Base

PART_POINTS = 100_000
"""Points after which the read of a long series ends a part."""
_ROWS, _MOST_ROWS = 100, 2_000
"""Rows that are read at once: at first, as a chunk of a long series may have thousands of points, and of short ones."""
_SHORT = POINT.size * 64

# Columns of the table, not of the class: rows then do not pass through the ORM.
_CHUNKS = Base.metadata.tables["point_chunks"].c
_OF_ONE = _CHUNKS.series_id == bindparam("series"), _CHUNKS.first > bindparam("behind")
_DATA = Prepared(select(_CHUNKS.data).where(*_OF_ONE).order_by(_CHUNKS.first))
_PLACE = select(_CHUNKS.first).where(*_OF_ONE).order_by(_CHUNKS.first).offset(bindparam("skipped")).limit(1)
_ENDS = tuple(
    select(_CHUNKS.attempt).where(*_OF_ONE).order_by(order).limit(1) for order in (_CHUNKS.first, _CHUNKS.first.desc())
)


@dataclass
class StoredPoints:
    """Points of series in the order of the series' ids, and then in that in which they were stored."""

    series: list[int] = field(default_factory=list[int])
    attempts: list[int] = field(default_factory=list[int])
    data: list[bytes] = field(default_factory=list[bytes])
    """Packed: some points of a series and an attempt."""


def read_part(
    session: Session, series: Sequence[int], stored: StoredPoints, *, after: int, attempt: int | None
) -> int | None:
    """Adds the points of the series, or of this attempt. Of one long series it reads a part, behind a position.

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


def _only_attempt(session: Session, series: int, after: int) -> int | None:
    """Returns the attempt of all points of the series behind a position; None if there are several, or no points."""
    connection, values = session.connection(), {"series": series, "behind": after}
    # An attempt stores nothing any more when the next one has begun.
    first, last = (connection.scalar(query, values) for query in _ENDS)
    return first if first == last else None


def _read_data(session: Session, series: int, stored: StoredPoints, *, after: int, attempt: int) -> int | None:
    """Does what `read_part` does where all points are of one attempt: it reads nothing but the points."""
    values = {"series": series, "behind": after}
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
    return session.connection().scalar(_PLACE, {**values, "skipped": chunks - 1})

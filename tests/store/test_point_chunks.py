"""Points of a series are read in parts, whatever chunks and attempts they are in."""

from collections.abc import Sequence

import pytest
from sqlalchemy import insert

from store.output import points as stored_points
from store.output.metrics import POINT
from store.output.points import StoredPoints
from store.tables import PointChunk, Series
from tests.store.fixture import StoreFixture

CHUNKS = [1] * 250 + [7, 1, 1, 90, 1]
"""Points of each."""


def stored(db: StoreFixture, attempts: Sequence[int]) -> int:
    """Stores a series in chunks of `CHUNKS` points, of these attempts, beside another one. Returns its id."""
    job_id = db.submit()
    with db.database.write() as session:
        keys = [{"job_id": job_id, "key": key} for key in ("loss", "other")]
        ids = session.scalars(insert(Series).returning(Series.id), keys).all()
        first, rows = 10, list[dict[str, object]]()
        for attempt, count in zip(attempts, CHUNKS, strict=True):
            for series, packed in zip(ids, (packs(first, count), packs(0, count)), strict=True):
                common = {"series_id": series, "job_id": job_id, "attempt": attempt, "count": count}
                rows.append({**common, "first": first, "data": packed})
                first += count
        session.execute(insert(PointChunk), rows)
    return ids[0]


def packs(first: int, count: int) -> bytes:
    return b"".join(POINT.pack(first + place, 0.5, 1) for place in range(count))


def read(db: StoreFixture, series: int, attempt: int | None = None) -> tuple[list[tuple[int, int]], list[int]]:
    """Returns the attempt and the step of each point, and how many points each part has."""
    points: list[tuple[int, int]] = []
    sizes: list[int] = []
    after: int | None = 0
    while after is not None:
        found = StoredPoints()
        with db.database.read() as session:
            after = stored_points.read_part(session, [series], found, after=after, attempt=attempt)
        assert set(found.series) <= {series}
        sizes.append(sum(map(len, found.data)) // POINT.size)
        for number, data in zip(found.attempts, found.data, strict=True):
            points += [(number, step) for step, _, _ in POINT.iter_unpack(data)]
    return points, sizes


def expected(attempts: Sequence[int]) -> list[tuple[int, int]]:
    first, found = 10, list[tuple[int, int]]()
    for attempt, count in zip(attempts, CHUNKS, strict=True):
        found += [(attempt, first + place) for place in range(count)]
        first += 2 * count
    return found


@pytest.mark.parametrize("second", [0, 1, 130, 254])
def test_all_points_are_read_once_and_in_order(db: StoreFixture, monkeypatch: pytest.MonkeyPatch, second: int) -> None:
    monkeypatch.setattr(stored_points, "_ROWS", 20)
    monkeypatch.setattr(stored_points, "_MOST_ROWS", 50)
    attempts = [1] * second + [2] * (len(CHUNKS) - second)
    series = stored(db, attempts)
    for part in (1, 100, 120, 10_000):
        monkeypatch.setattr(stored_points, "PART_POINTS", part)
        points, sizes = read(db, series)
        assert points == expected(attempts)
        assert len(sizes) > 1 or part == 10_000
        assert all(size >= part for size in sizes[:-1])
        for attempt in (1, 2, 3):
            assert read(db, series, attempt)[0] == [point for point in points if point[0] == attempt]

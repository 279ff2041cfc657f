"""Reads 100,000 points over HTTP, of one series downsampled to 1,500 and of 2,000 series: `python -m bench.series`.

The one series is stored as a fast job stores it (1,000 points a chunk) and as the slowest job does (one point a chunk).
The peer reads as many points from plain rows of SQLite, and encodes all of them with the standard library's JSON.
"""

from collections.abc import Callable, Iterator
import json
import math
from pathlib import Path
import socket
import sqlite3
import sys
import time

from sqlalchemy import insert

from bench import table
from bench.load import exchange, get
from bench.service import Service, databases, scratch, up
from bench.submit import SPEC
from bench.table import Row
from store.db.database import Database
from store.db.tables import PointChunk, Series
from store.rows.metrics import POINT

REPEATS = 15
POINTS = 100_000
CHUNKS = {"chunks of 1,000": 1_000, "chunks of 1": 1}
_SHOWN = 1_500
_MANY = 2_000
"""The most series that a job may have."""
_PEER = "sqlite3 and json.dumps, every point"


def measure() -> Iterator[Row]:
    with scratch() as folder, databases() as found:
        theirs = _timed(_peer_reader(folder / "peer.db"))
        for name, database in found.items():
            (folder / name).mkdir()
            with up(folder / name, database=database) as service:
                for shape, size in CHUNKS.items():
                    job_id = _seed(service, size=size)
                    yield Row(
                        f"a series of {POINTS:,} points at max_points={_SHOWN}, {name}, {shape}",
                        "ms",
                        _timed(_api_reader(service, job_id, expected=_SHOWN)),
                        peer=_PEER,
                        theirs=theirs,
                        at_most=100,
                    )
                job_id = _seed(service, size=POINTS // _MANY, series=_MANY)
                yield Row(
                    f"{_MANY:,} series of {POINTS // _MANY} points, {name}",
                    "ms",
                    _timed(_api_reader(service, job_id, expected=POINTS)),
                    peer=_PEER,
                    theirs=theirs,
                )


def _seed(service: Service, *, size: int, series: int = 1) -> str:
    """Returns a queued job with all points in this many series. `size`: points of a chunk."""
    with service.client() as client:
        job_id = client.submit(SPEC).id
    count = POINTS // series
    keys = [f"train/loss-{number}" for number in range(series)]
    database = Database(service.database)
    with database.write() as session:
        rows = [{"job_id": job_id, "key": key, "latest": _value(count), "count": count} for key in keys]
        ids = session.scalars(insert(Series).returning(Series.id), rows).all()
        chunks = [
            {
                "series_id": series_id,
                "first": place * count + first + 10,
                "job_id": job_id,
                "attempt": 1,
                "count": size,
                "data": b"".join(POINT.pack(step, _value(step), _time(step)) for step in range(first, first + size)),
            }
            for place, series_id in enumerate(ids)
            for first in range(0, count, size)
        ]
        session.execute(insert(PointChunk), chunks)
    database.close()
    return job_id


def _api_reader(service: Service, job_id: str, *, expected: int) -> Callable[[], object]:
    request = get(f"/v1/jobs/{job_id}/metrics?max_points={_SHOWN}", token=service.token)
    connection = socket.create_connection(service.address, timeout=60)

    def ask() -> None:
        status, body = exchange(connection, request)
        points = sum(len(series["points"]) for series in json.loads(body)["data"])
        if status != "200" or not expected * 0.9 <= points <= expected:
            sys.exit(f"the series was answered with {status}, {points} points")

    return ask


def _peer_reader(path: Path) -> Callable[[], object]:
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE points (step INTEGER PRIMARY KEY, value REAL, time INTEGER)")
    rows = ((step, _value(step), _time(step)) for step in range(POINTS))
    connection.executemany("INSERT INTO points VALUES (?, ?, ?)", rows)
    connection.commit()
    return lambda: json.dumps(connection.execute("SELECT step, value, time FROM points ORDER BY step").fetchall())


def _timed(work: Callable[[], object]) -> list[float]:
    work()  # warms the caches
    taken: list[float] = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        work()
        taken.append((time.perf_counter() - began) * 1e3)
    return taken


def _value(step: int) -> float:
    return math.exp(-step / 20_000) + 0.05 * math.sin(step * 12.9898)


def _time(step: int) -> int:
    return 1_700_000_000_000_000 + step * 500_000


if __name__ == "__main__":
    table.main(measure)

"""Reads 100,000 points over HTTP, of one series in 1,500 buckets and of 2,000 series: `python -m bench.series`.

The one series is stored in chunks of 1,000 points, as a fast job writes it, and in chunks of one point, as the slowest
job does. The chunks of one point are also read after housekeeping has joined them, for a running and an ended job. The
peer reads as many points from plain rows of SQLite, and encodes all of them with the standard library's JSON.
"""

from collections.abc import Callable, Iterator
from contextlib import closing
import json
import math
from pathlib import Path
import socket
import sqlite3
import sys
import time

from sqlalchemy import insert, update

from bench import table
from bench.load import exchange, get
from bench.service import Service, databases, scratch, up
from bench.submit import SPEC
from bench.table import Row
from store import housekeeping as cleanup
from store.blobs.folder import BlobFolder
from store.db.database import Database, now_us
from store.output.metrics import POINT
from store.queue.announcing import Queue
from store.secret_keys import SecretKeys
from store.store import Store
from store.tables import Job, PointChunk, Series
from torchyard.contract.states import JobState

REPEATS = 15
POINTS = 100_000
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
                for shape, job_id in _shapes(service):
                    yield Row(
                        f"a series of {POINTS:,} points at max_points={_SHOWN}, {name}, {shape}",
                        "ms",
                        _timed(_curve_reader(service, job_id)),
                        peer=_PEER,
                        theirs=theirs,
                        at_most=50,
                    )
                job_id = seed(service, size=POINTS // _MANY, series=_MANY)
                yield Row(
                    f"{_MANY:,} series of {POINTS // _MANY} points, {name}",
                    "ms",
                    _timed(_api_reader(service, job_id, expected=POINTS)),
                    peer=_PEER,
                    theirs=theirs,
                    at_most=150,
                )


def seed(service: Service, *, size: int, series: int = 1) -> str:
    """Returns the id of a queued job with all points in this many series. `size`: points of a chunk."""
    with service.client() as client:
        job_id = client.submit(SPEC).id
    count = POINTS // series
    keys = [f"train/loss-{number}" for number in range(series)]
    database = Database(service.database)
    with database.write() as session:
        rows = [{"job_id": job_id, "key": key, "latest": value(count), "count": count} for key in keys]
        ids = session.scalars(insert(Series).returning(Series.id), rows).all()
        chunks = [
            {
                "series_id": series_id,
                "first": place * count + first + 10,
                "job_id": job_id,
                "attempt": 1,
                "count": size,
                "data": b"".join(POINT.pack(step, value(step), _time(step)) for step in range(first, first + size)),
            }
            for place, series_id in enumerate(ids)
            for first in range(0, count, size)
        ]
        session.execute(insert(PointChunk), chunks)
        session.execute(update(Job).where(Job.id == job_id).values(position=POINTS + 9))
    database.close()
    return job_id


def value(step: int) -> float:
    return math.exp(-step / 20_000) + 0.05 * math.sin(step * 12.9898)


def _shapes(service: Service) -> Iterator[tuple[str, str]]:
    """Yields the ways in which the series is stored, each with a job that has it stored so now."""
    yield "chunks of 1,000", seed(service, size=1_000)
    job_id = seed(service, size=1)
    yield "chunks of 1, none joined", job_id
    began = time.perf_counter()
    _join(service, job_id, state=JobState.RUNNING)
    print(f"the chunks were joined in {time.perf_counter() - began:.1f} s", file=sys.stderr)
    yield "chunks of 1, joined while the job runs", job_id
    _join(service, job_id, state=JobState.SUCCEEDED)
    yield "chunks of 1, joined after its end", job_id


def _join(service: Service, job_id: str, *, state: JobState) -> None:
    """Joins the chunks of the job as housekeeping does in this state, without its pauses."""
    with closing(Database(service.database)) as database:
        keys, nobody = SecretKeys("", service.data / "none"), Queue("unix:///nowhere", service=str)
        store = Store(database, nobody, BlobFolder(service.data), keys, service=str)
        ended = now_us() if state.terminal else None
        with database.write() as session:
            session.execute(update(Job).where(Job.id == job_id).values(state=state, finished_at=ended))
        for _ in cleanup.join_points(store):
            pass


def _api_reader(service: Service, job_id: str, *, expected: int) -> Callable[[], object]:
    request = get(f"/v1/jobs/{job_id}/metrics?max_points={_SHOWN}", token=service.token)
    connection = socket.create_connection(service.address, timeout=60)

    def ask() -> None:
        status, body = exchange(connection, request)
        points = sum(len(series["points"]) for series in json.loads(body)["data"])
        if status != "200" or not expected * 0.9 <= points <= expected:
            sys.exit(f"the series was answered with {status}, {points} points")

    return ask


def _curve_reader(service: Service, job_id: str) -> Callable[[], object]:
    query = f"job={job_id}&key=train/loss-0&smooth=0.9&max_points={_SHOWN}"
    request = get(f"/v1/metrics?{query}", token=service.token)
    connection = socket.create_connection(service.address, timeout=60)

    def ask() -> None:
        status, body = exchange(connection, request)
        (curve,) = json.loads(body)["series"]
        if status != "200" or curve["points"] != POINTS or not _SHOWN * 0.9 <= len(curve["columns"]["ema"]) <= _SHOWN:
            sys.exit(f"the series was answered with {status}, {curve['points']} points")

    return ask


def _peer_reader(path: Path) -> Callable[[], object]:
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE points (step INTEGER PRIMARY KEY, value REAL, time INTEGER)")
    rows = ((step, value(step), _time(step)) for step in range(POINTS))
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


def _time(step: int) -> int:
    return 1_700_000_000_000_000 + step * 500_000


if __name__ == "__main__":
    table.main(measure)

"""A queue of 100,000 jobs that fit on no worker: `python -m bench.queue`.

It measures the time from POST to the start of a job that fits, the CPU time of the idle worker, a GET of the last job
and of the first, and a page of the queue. The peer is the same service with an empty queue. The jobs are of one user,
with three different resources.
"""

from collections.abc import Iterator
from pathlib import Path
from statistics import median
import time

from redis import Redis
from sqlalchemy import Connection, create_engine, text

from bench import load, table
from bench.rest import cpu_ns
from bench.service import Service, databases, scratch, script, up, wait_for
from bench.table import Row
from store.redis import names as redis_names
from torchyard.cli.up.redis_server import socket_in
from torchyard.client.client import Client
from torchyard.host.datadir import redis_url

WAITING = 100_000
REQUESTS = 3
REPEATS = 5
SETTLE_S = 15.0
"""Long enough for a sweep and for the first pass over the queue."""
MEASURE_S = 30.0
READ_S = 3.0
_PEER = "empty queue"
_FIRST = f"job_{0:032x}"
_NUMBERED = {"sqlite": "printf('job_%032x', n)", "postgresql": "'job_' || lpad(to_hex(n), 32, '0')"}


def measure() -> Iterator[Row]:
    with scratch() as folder, databases() as found:
        for name, database in found.items():
            yield from _on(name, database, folder / name)


def _on(name: str, database: str | None, folder: Path) -> Iterator[Row]:
    folder.mkdir()
    with up(folder, database=database) as service, service.client() as client:
        fits = script(folder / "code", "")
        peer_starts = [seconds_to_start(client, fits) for _ in range(REPEATS)]
        peer_idle_cpu_percent = _idle_cpu_percent(service)
        large = [client.submit(fits | {"resources": {"devices_per_node": 100 + n}}).id for n in range(REQUESTS)]
        _fill(service.database, large)
        refill(service)
        assert client.get(large[-1]).view.status_reason.position == WAITING + REQUESTS
        wait_for(
            lambda: client.get(large[-1]).view.status_reason.code == "too_big",
            "the first pass over the queue",
            pause=0.1,
        )
        starts = [seconds_to_start(client, fits) for _ in range(REPEATS)]
        cpu = _idle_cpu_percent(service)
        where = f"{WAITING:,} jobs that fit nowhere are queued, {name}"
        yield Row(f"POST to the start of a job that fits, {where}", "s", starts, _PEER, peer_starts, at_most=0.3)
        idle = f"– CPU of the idle worker, {where}"
        yield Row(idle, "% of a core", [cpu], _PEER, [peer_idle_cpu_percent], at_most=1.0)
        first, last = (_reads(service, f"/v1/jobs/{job_id}") for job_id in (_FIRST, large[-1]))
        yield Row(f"– GET of the last job, {where}", "ms", last, "the first job", first)
        longer = [median(last) - median(first)]
        yield Row(f"– GET of the last job takes longer than the first by, {where}", "ms", longer, at_most=2.0)
        yield Row(f"– a page of 100 of the queue, {where}", "ms", _reads(service, "/v1/queue?limit=100"), at_most=10.0)


def seconds_to_start(client: Client, spec: dict[str, object]) -> float:
    """Returns the seconds from POST to the claim. Waits for the end of the job."""
    submitted = time.time()
    job_id = client.submit(spec).id
    wait_for(lambda: client.get(job_id).state.terminal, "the end of the job", pause=0.1)
    started = client.get(job_id).view.started_at
    assert started is not None
    return started.timestamp() - submitted


def _idle_cpu_percent(service: Service) -> float:
    """Returns the CPU use of the idle worker, in percent of a core."""
    time.sleep(SETTLE_S)
    worker = [service.pids["worker"]]
    before, began = cpu_ns(worker), time.monotonic()
    time.sleep(MEASURE_S)
    return (cpu_ns(worker) - before) / 1e7 / (time.monotonic() - began)


def _reads(service: Service, path: str) -> list[float]:
    """Returns the milliseconds of each GET, one at a time."""
    request = load.get(path, token=service.token)
    return load.drive(service.address, request, clients=1, seconds=READ_S).latencies_ms


def _fill(url: str, job_ids: list[str]) -> None:
    """Inserts `WAITING` jobs that are older copies of `job_ids`."""
    engine = create_engine(url)
    with engine.begin() as connection:
        for place, job_id in enumerate(job_ids):
            copies(connection, job_id, first=place * WAITING, count=len(range(place, WAITING, len(job_ids))))
    if engine.dialect.name == "postgresql":  # autovacuum does this some time later
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(text("VACUUM ANALYZE jobs"))
    engine.dispose()


def refill(service: Service) -> None:
    """Waits until the line in Redis has the jobs that were written to the database alone."""
    engine = create_engine(service.database)
    with engine.connect() as connection:
        base = redis_names.line(connection.execute(text("SELECT id FROM service")).scalar_one())
    engine.dispose()
    folder = service.data / "redis"
    with Redis.from_url(redis_url(folder, socket=socket_in(folder))) as redis:
        redis.unlink(f"{base}stamp")
        wait_for(lambda: redis.exists(f"{base}stamp"), "the line in Redis", pause=0.1)


def copies(connection: Connection, job_id: str, *, first: int, count: int, step: int = 1) -> None:
    """Stores copies of the job, whose ids are of the numbers from `first` on."""
    row = connection.execute(text("SELECT * FROM jobs WHERE id = :id"), {"id": job_id}).mappings().one()
    columns = ", ".join(str(column) for column in row if column != "id")
    # Not as if they had just come: a sweep compares those.
    values = columns.replace("lined_at", "0")
    connection.execute(
        text(
            f"INSERT INTO jobs (id, {columns}) WITH RECURSIVE numbers (n) AS"
            " (SELECT CAST(:first AS INTEGER) UNION ALL SELECT n + :step FROM numbers WHERE n + :step < :last)"
            f" SELECT {_NUMBERED[connection.dialect.name]}, {values} FROM jobs, numbers WHERE id = :id"
        ),
        {"id": job_id, "first": first, "last": first + count * step, "step": step},
    )


if __name__ == "__main__":
    table.main(measure)

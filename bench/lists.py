"""The latency of lists of 10,000 jobs: `python -m bench.lists`.

Half of the jobs are queued, half have ended with metrics and checkpoints. It measures one answer at a time: one job,
pages of 50 jobs, and a page of 50 of the queue. `python -m bench.lists 1000000` measures the same with a million jobs;
those beyond 10,000 have ended.
"""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
import sys

from sqlalchemy import Connection, Engine, create_engine, text

from bench import load, table
from bench.queue import copies, refill
from bench.service import Service, databases, scratch, up, wait_for
from bench.table import Row

JOBS = 10_000
REQUESTS = 3
SECONDS = 3.0
_SPEC = {"trainer": "image-classification", "labels": {"team": "bridges"}}
_PAGES = {
    "": "newest first",
    "state=queued": "of one state",
    "q=igits-1": "that a search finds",
    "q=nothing": "that a search does not find",
    "sort=name": "by name",
    "sort=-finished": "by the end, reversed",
    "counts=true": "counted",
    "q=digits&sort=owner&counts=true": "searched, sorted and counted",
}
_PAGE_MS, _COUNTS_MS = 8, 10
"""The most that a page takes, and how much longer a counted one."""
COLUMNS = (
    *("config.optimizer.lr", "config.training.epochs", "config.training.seed", "label:team", "notes"),
    *("metric:val/loss:best", "metric:val/loss:min", "metric:val/accuracy:last"),
)
_COLUMNS = "&".join(f"columns={name}" for name in COLUMNS)
_TABLES = {
    _COLUMNS: ("with eight columns", 12),
    "sort=config.optimizer.lr": ("by a value of the specs, of the newest 10,000", 1500),
    "sort=metric:val/loss:best": ("by the best of a metric, of the newest 10,000", 3000),
    f"group_by=config.optimizer.lr&{_COLUMNS}": ("with groups, and the spread of eight columns", 4000),
}
"""Pages of a table of jobs, and the most milliseconds that each takes."""
_METRICS = (
    "INSERT INTO series (job_id, key, latest, count) SELECT jobs.id, keys.key, 0.5, 1 FROM jobs, (SELECT 'train/loss'"
    " AS key UNION SELECT 'val/loss' UNION SELECT 'val/accuracy') AS keys WHERE jobs.state = 'succeeded'"
)
_CHECKPOINTS = (
    "INSERT INTO checkpoints (id, job_id, attempt, name, epoch, step, end_of_epoch, metrics, monitored, files, size,"
    " created_at) SELECT 'ckpt_' || substr(id, 5), id, 1, 'epoch-1', 1, 10, true, '{}', 0.5, '[]', 0, created_at"
    " FROM jobs WHERE state = 'succeeded'"
)
_ADD_UP_COUNTS = (
    "CREATE TEMPORARY TABLE sums AS SELECT owner, visibility, state, archived, sum(jobs) AS jobs FROM job_counts"
    " GROUP BY owner, visibility, state, archived",
    "DELETE FROM job_counts",
    "INSERT INTO job_counts (owner, visibility, state, archived, jobs)"
    " SELECT owner, visibility, state, archived, jobs FROM sums",
)


def measure(jobs: int = JOBS) -> Iterator[Row]:
    with scratch() as folder, databases() as found:
        for name, database in found.items():
            yield from _on(name, database, folder / name, jobs=jobs)


def fill(service: Service, *, jobs: int) -> tuple[str, str]:
    """Stores the jobs, and returns the ids of one that has ended and of one that is queued."""
    with service.client() as client:
        specs = [{**_SPEC, "name": f"digits-{n}", "resources": {"devices_per_node": 100 + n}} for n in range(REQUESTS)]
        first = [client.submit(spec).id for spec in specs]
        wait_for(lambda: client.get(first[-1]).view.status_reason.code == "too_big", "the first pass", pause=0.1)
    engine = create_engine(service.database)
    with engine.begin() as connection:
        for place, job_id in enumerate(first):
            copies(connection, job_id, first=place, count=len(range(place, JOBS, REQUESTS)), step=REQUESTS)
        connection.execute(
            text(
                "UPDATE jobs SET state = 'succeeded', started_at = created_at, finished_at = created_at"
                " WHERE substr(id, 36, 1) IN ('0', '1', '2', '3', '4', '5', '6', '7') AND id < :first"
            ),
            {"first": first[0]},
        )
        _copy_ended(connection, jobs=jobs)
        for statement in (_METRICS, _CHECKPOINTS):
            connection.execute(text(statement))
        ended = connection.execute(text("SELECT max(id) FROM jobs WHERE state = 'succeeded'")).scalar_one()
    _analyse(engine)
    refill(service)
    return ended, first[0]


def _on(name: str, database: str | None, folder: Path, *, jobs: int) -> Iterator[Row]:
    folder.mkdir()
    with up(folder, database=database, slots=1) as service:
        ended, queued = fill(service, jobs=jobs)
        where = f"{jobs:,} jobs, {name}"
        yield Row(f"GET of a queued job, {where}", "ms", _times(service, f"/v1/jobs/{queued}"), at_most=4)
        yield Row(f"– of a job that has ended, {where}", "ms", _times(service, f"/v1/jobs/{ended}"), at_most=4)
        for query, what in _PAGES.items():
            taken = _times(service, f"/v1/jobs?limit=50&{query}")
            most = _PAGE_MS + (_COUNTS_MS if "counts=true" in query else 0)
            yield Row(f"– of a page of 50 jobs {what}, {where}", "ms", taken, at_most=most)
        for query, (what, most) in _TABLES.items():
            yield Row(
                f"– of a page of 50 jobs {what}, {where}",
                "ms",
                _times(service, f"/v1/jobs?limit=50&{query}"),
                at_most=most,
            )
        yield Row(f"– of a page of 50 of the queue, {where}", "ms", _times(service, "/v1/queue?limit=50"), at_most=15)


def _times(service: Service, path: str) -> list[float]:
    request = load.get(path, token=service.token)
    return load.drive(service.address, request, clients=1, seconds=SECONDS).latencies_ms


def _copy_ended(connection: Connection, *, jobs: int) -> None:
    """Copies jobs that have ended until the table has `jobs` rows."""
    ended = connection.execute(text("SELECT max(id) FROM jobs WHERE state = 'succeeded' GROUP BY name")).scalars().all()
    for place, job_id in enumerate(ended):
        numbers = range(JOBS + place, jobs, len(ended))
        if numbers:
            copies(connection, job_id, first=numbers.start, count=len(numbers), step=numbers.step)
    # As housekeeping leaves them.
    for statement in _ADD_UP_COUNTS:
        connection.execute(text(statement))


def _analyse(engine: Engine) -> None:
    if engine.dialect.name == "postgresql":  # autovacuum does this some time later
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(text("VACUUM ANALYZE"))
    engine.dispose()


if __name__ == "__main__":
    table.main(partial(measure, int(sys.argv[1]) if len(sys.argv) > 1 else JOBS))

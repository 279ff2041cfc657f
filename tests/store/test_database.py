"""Connections, transactions, and the database's clock."""

from contextlib import closing
import math
from pathlib import Path
import time

import pytest
from sqlalchemy import select, text, update
from sqlalchemy.exc import IntegrityError, SQLAlchemyError
from sqlalchemy.orm import Session

from store.db.database import Database, now_us
from store.jobs import events as job_events
from store.jobs import jobs, listing
from store.output import logs
from store.output.facts import MetricPoint, NewLines
from store.tables import Job, Worker
from store.team.callers import SERVICE
from tests.databases import SQLiteDatabases
from tests.rows import each_row
from tests.store.fixture import StoreFixture, run_together
from torchyard.contract.errors import Unavailable
from torchyard.contract.jobs.filters import JobQuery


def test_the_clock_counts_microseconds_since_the_epoch(db: StoreFixture) -> None:
    before = time.time_ns() // 1000
    told = db.read(lambda session: session.execute(select(now_us())).scalar_one())
    after = time.time_ns() // 1000
    assert isinstance(told, int)
    assert before - 1000 <= told <= after + 1000


def test_the_clock_does_not_go_back(db: StoreFixture) -> None:
    times = [db.read(lambda session: session.execute(select(now_us())).scalar_one()) for _ in range(200)]
    assert times == sorted(times)


@each_row(
    ("number", "stored"),
    [(10**4200, 2**63 - 1), (-(10**4200), -(2**63)), (2**63 - 1, 2**63 - 1), (math.inf, "Infinity"), (True, True)],
)
def test_a_number_that_a_database_refuses_does_not_reach_it(db: StoreFixture, number: float, stored: object) -> None:
    error = {"code": "user_error", "message": "1234567890123456789", "rank": number, "exit_code": 1}
    job_id = db.submit()
    db.write(lambda session: session.execute(update(Job).where(Job.id == job_id).values(error=error)))
    (listed,) = db.read(lambda session: listing.list_page(session, JobQuery(), caller=SERVICE, limit=1)).items
    assert listed.error == {**error, "rank": stored}


def test_a_read_sees_one_snapshot(db: StoreFixture) -> None:
    first = db.submit()
    with db.database.read() as session:
        assert [job_id for job_id, _ in jobs.queued(session)] == [first]
        db.submit()
        assert [job_id for job_id, _ in jobs.queued(session)] == [first]
    assert len(db.read(jobs.queued)) == 2


def test_writers_that_read_first_do_not_lose_each_others_updates(db: StoreFixture) -> None:
    job_id = db.submit()

    def note() -> None:
        for _ in range(25):
            with db.database.write() as session:
                job = jobs.lock(session, job_id)
                assert job is not None
                job.priority += 1

    assert run_together(*[note] * 4) == [None] * 4
    assert db.job(job_id).priority == 100


def test_a_violated_constraint_reaches_the_caller(db: StoreFixture) -> None:
    worker_id = db.worker()

    def twice(session: Session) -> None:
        session.add(Worker(id=worker_id, name="again", devices=[], started_at=0, seen_at=0))

    with pytest.raises(IntegrityError):
        db.write(twice)


def test_a_programming_error_is_not_unavailable(db: StoreFixture) -> None:
    job_id = db.submit()
    with pytest.raises((OverflowError, SQLAlchemyError)):
        db.read(lambda session: job_events.list_events(session, job_id, caller=SERVICE, after=2**80, limit=1))


def test_a_full_disk_is_unavailable_and_stores_nothing_partially(sqlite: SQLiteDatabases) -> None:
    with sqlite.migrated() as url, closing(Database(url)) as database:
        db = StoreFixture(database)
        claim = db.running(db.submit(), db.worker())
        lines = [NewLines(0, "stdout", [f"{number}" * 20 for number in range(20_000)])]
        points = [MetricPoint("loss", step, 0.5, step) for step in range(1000)]
        before = db.everything()
        _let_grow(database, pages=10)
        with pytest.raises(Unavailable, match="full"):
            db.record(claim, seq=0, points=points, lines=lines, offsets={"events.jsonl": 1})
        assert db.everything() == before
        _let_grow(database, pages=1_000_000)
        db.record(claim, seq=0, points=points, lines=lines, offsets={"events.jsonl": 1})
        assert db.attempt(claim).relay_seq == 1
        assert (
            len(db.read(lambda session: logs.list_after(session, claim.job_id, line=0, limit=30_000).items)) == 20_000
        )


def _let_grow(database: Database, *, pages: int) -> None:
    """Limits the database to `pages` more pages, on the only connection of a single-threaded test."""
    with database.engine.connect() as connection:
        size = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
        granted = connection.exec_driver_sql(f"PRAGMA max_page_count={size + pages}").scalar_one()
        assert granted == size + pages


def test_a_database_that_cannot_be_opened_is_unavailable(tmp_path: Path) -> None:
    with closing(Database(f"sqlite:///{tmp_path / 'no' / 'such' / 'folder.db'}")) as database:
        with pytest.raises(Unavailable, match="the database does not answer"), database.read() as session:
            session.execute(text("SELECT 1"))
        with pytest.raises(Unavailable), database.write() as session:
            session.execute(text("SELECT 1"))

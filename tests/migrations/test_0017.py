"""Revision 0017 counts the points that attempts have stored before."""

from contextlib import closing

from alembic import command

from migrations.__main__ import configuration
from store.db.database import Database
from store.facts.telemetry import MetricPoint
from store.rows.metrics import POINT
from tests.store.fixture import StoreFixture
from torchyard.contract.job import EndReason


def test_stored_points_are_counted_by_attempt(database_url: str) -> None:
    with closing(Database(database_url)) as database:
        db = StoreFixture(database)
        first = db.running(db.submit(), db.worker())
        db.record(first, seq=0, points=[MetricPoint(key, 1, 0.0, 1) for key in ("a", "b")])
        db.end(first, EndReason.PREEMPTED)
        second = db.running(first.job_id, db.worker())
        db.record(second, seq=0, points=[MetricPoint("a", 2, 0.0, 1)])
        empty = db.running(db.submit(), db.worker("box-b"), "slot-b")
    command.downgrade(configuration(database_url), "0016")
    command.upgrade(configuration(database_url), "head")
    with closing(Database(database_url)) as database:
        db = StoreFixture(database)
        counted = [db.attempt(claim).point_bytes for claim in (first, second, empty)]
    assert counted == [2 * POINT.size, POINT.size, 0]

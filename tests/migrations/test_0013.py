"""The downgrade of revision 0013 splits joined points, and an upgrade joins them again."""

from contextlib import closing

from alembic import command
import pytest
from sqlalchemy import text

from migrations.__main__ import configuration
from store.commands import cleanup
from store.db.database import Database
from store.queries import timeline
from store.queries.timeline import TimelineItem
from store.rows import joining
from store.rows.metrics import MetricPoint
from tests.store.fixture import StoreFixture, store_on
from torchyard.contract.job import EndReason

CHUNKS = "SELECT series_id, first, attempt, count, data FROM point_chunks ORDER BY series_id, first"


def test_joined_points_are_split_again(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joining, "BLOCK", 16)
    with closing(Database(database_url)) as database:
        db = StoreFixture(database)
        claim = db.running(db.submit(), db.worker())
        for seq in range(30):
            db.record(claim, seq=seq, points=[MetricPoint(key, seq, float(seq), 1) for key in ("a", "b")])
        db.end(claim, EndReason.COMPLETED)
        stored = chunks(db)
        told = metrics(db, claim.job_id)
        join(db)
        assert len(chunks(db)) < len(stored) / 2
    command.downgrade(configuration(database_url), "0012")
    with closing(Database(database_url)) as database:
        assert chunks(StoreFixture(database)) == stored
    command.upgrade(configuration(database_url), "head")
    with closing(Database(database_url)) as database:
        db = StoreFixture(database)
        join(db)
        assert len(chunks(db)) < len(stored) / 2
        assert metrics(db, claim.job_id) == told


def chunks(db: StoreFixture) -> list[tuple[object, ...]]:
    def bytes_of(value: object) -> object:
        return bytes(value) if isinstance(value, memoryview) else value

    rows = db.read(lambda session: session.execute(text(CHUNKS)).all())
    return [tuple(bytes_of(value) for value in row) for row in rows]


def join(db: StoreFixture) -> None:
    for _ in cleanup.join_points(store_on(db.database)):
        pass


def metrics(db: StoreFixture, job_id: str) -> list[TimelineItem]:
    return db.read(lambda session: list(timeline.after(session, job_id, 0, kinds=frozenset({"metric"}))))

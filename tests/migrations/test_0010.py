"""Revision 0010 only adds a column: series of the version before are what their scripts reported."""

from contextlib import closing

from alembic import command

from migrations.__main__ import configuration
from store.db.database import Database
from store.rows.metrics import TENSORBOARD, MetricPoint
from tests.store.fixture import StoreFixture


def test_a_series_of_the_version_before_is_the_scripts_own(database_url: str) -> None:
    with closing(Database(database_url)) as database:
        db = StoreFixture(database)
        claim = db.running(db.submit(), db.worker())
        db.record(claim, seq=0, points=[MetricPoint("loss", 1, 1.0, 1)])
    command.downgrade(configuration(database_url), "0009")
    command.upgrade(configuration(database_url), "head")
    with closing(Database(database_url)) as database:
        db = StoreFixture(database)
        db.record(claim, seq=1, curves=[MetricPoint("loss", 2, 9.0, 1), MetricPoint("lr", 1, 1.0, 1)])
        found = db.series(claim.job_id)
    assert {key: (columns.source, columns.steps.tolist()) for key, columns in found.items()} == {
        "loss": (None, [1]),
        "lr": (TENSORBOARD, [1]),
    }

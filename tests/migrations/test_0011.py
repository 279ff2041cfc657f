"""Revision 0011 only adds a table: an attempt that runs during the upgrade stores its files as a new one does."""

from contextlib import closing
from pathlib import Path

from alembic import command

from migrations.__main__ import configuration
from store.blobs import Blobs
from store.db.database import Database
from store.rows import deletion, quotas
from tests.store.fixture import StoreFixture
from tests.store.test_artifacts import listed, stored
from torchyard.contract.job import EndReason


def test_an_attempt_that_runs_during_the_upgrade_stores_what_it_left(database_url: str, tmp_path: Path) -> None:
    with closing(Database(database_url)) as database:
        db = StoreFixture(database)
        claim = db.running(db.submit(), db.worker())
    command.downgrade(configuration(database_url), "0010")
    command.upgrade(configuration(database_url), "head")
    with closing(Database(database_url)) as database:
        db = StoreFixture(database)
        assert listed(db, claim.job_id) == []
        db.record(claim, seq=0, artifacts=[stored(Blobs(tmp_path / "blobs"), "plots/loss.png", b"png")])
        db.end(claim, EndReason.COMPLETED)
        assert listed(db, claim.job_id) == [("plots/loss.png", 1)]
        assert db.read(lambda session: quotas.stored_bytes(session, db.job(claim.job_id).owner)) == 3
        db.write(lambda session: deletion.delete_job(session, claim.job_id))
        assert listed(db, claim.job_id) == []

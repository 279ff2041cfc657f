"""Revision 0054: a retry from before begins with the code and its checkpoint, and a later one with the folder."""

from contextlib import closing

from alembic import command

from migrations.actions import configuration
from store.db.database import Database
from store.queries import attempts
from tests.store.fixture import StoreFixture, store_on
from torchyard.contract.job import EndReason


def test_a_retry_from_before_the_revision_finds_no_folder(database_url: str) -> None:
    with closing(Database(database_url)) as database:
        db = StoreFixture(database)
        worker = db.worker()
        claim = db.running(db.submit(), worker)
        db.end(claim, EndReason.COMPLETED)
        before = db.retry(claim.job_id)
    command.downgrade(configuration(database_url), "0053")
    command.upgrade(configuration(database_url), "head")
    with closing(Database(database_url)) as database:
        db = StoreFixture(database)
        after = db.retry(claim.job_id)
        assert attempts.read(store_on(database), db.starting(before, worker, "a")).inherited is None
        inherited = attempts.read(store_on(database), db.starting(after, worker, "b")).inherited
        assert inherited is not None and (inherited.job_id, inherited.inherits) == (claim.job_id, "folder")

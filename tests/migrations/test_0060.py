"""Revision 0060: the folders that workers have told of before a downgrade are told anew."""

from contextlib import closing

from alembic import command
import pytest

from migrations.actions import configuration
from store.db.database import Database
from store.rows import folders
from tests.store.fixture import StoreFixture


@pytest.mark.thorough
def test_a_worker_tells_of_its_folders_after_the_revision(database_url: str) -> None:
    with closing(Database(database_url)) as database:
        db = StoreFixture(database)
        job_id = db.submit()
        db.write(lambda session: folders.replace(session, "wrk_1", {job_id: 5}))
    command.downgrade(configuration(database_url), "0054")
    command.upgrade(configuration(database_url), "head")
    with closing(Database(database_url)) as database:
        db = StoreFixture(database)
        assert db.read(lambda session: folders.of_worker(session, "wrk_1")) == {}
        db.write(lambda session: folders.replace(session, "wrk_1", {job_id: 5}))
        assert db.read(lambda session: folders.of_worker(session, "wrk_1")) == {job_id: 5}

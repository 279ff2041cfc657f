"""Revision 0031: without models, their files are left to the collector."""

from contextlib import closing
from pathlib import Path

from alembic import command
import pytest
from sqlalchemy import select

from migrations.actions import configuration
from store.blobs import Blobs
from store.commands import cleanup, models
from store.db.database import Database
from store.db.tables import Garbage, Model
from store.facts.callers import SERVICE
from store.facts.models import NewVersion
from store.rows import deletion
from tests.store.fixture import StoreFixture, checkpoint, store_on

SHA256 = "0" * 64
"""Of the file of every such checkpoint."""


@pytest.mark.thorough
def test_a_downgrade_leaves_the_files_of_models_to_the_collector(database_url: str, tmp_path: Path) -> None:
    with closing(Database(database_url)) as database:
        db, store = StoreFixture(database), store_on(database, blobs=Blobs(tmp_path / "blobs"))
        job_id = db.submit()
        claim = db.running(job_id, db.worker())
        db.record(claim, seq=0, checkpoints=[checkpoint("a", step=1)])
        db.complete(claim)
        for name in ("one", "two"):
            models.add(store, NewVersion(name, job_id, "latest", None, "private", SERVICE))
        db.write(lambda session: deletion.delete_job(session, job_id))
        cleanup.collect_garbage(store)
        assert db.read(lambda session: session.scalars(select(Garbage.sha256)).all()) == []
    command.downgrade(configuration(database_url), "0030")
    command.upgrade(configuration(database_url), "head")
    with closing(Database(database_url)) as database:
        db = StoreFixture(database)
        assert db.read(lambda session: session.scalars(select(Model)).all()) == []
        assert db.read(lambda session: session.scalars(select(Garbage.sha256)).all()) == [SHA256]

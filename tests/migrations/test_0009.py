"""Revision 0009 only adds tables: bundles are uploaded beside the jobs of the version before."""

from contextlib import closing
from pathlib import Path

from alembic import command

from migrations.__main__ import configuration
from store.blobs import Blobs
from store.db.database import Database
from store.rows import bundles, deletion
from tests.api.bundles import packed
from tests.store.fixture import StoreFixture, store_on
from tests.store.test_bundles import ADA, owners, submit, upload
from torchyard.contract.job import EndReason


def test_bundles_are_uploaded_named_and_removed_beside_the_jobs_of_the_version_before(
    database_url: str, tmp_path: Path
) -> None:
    with closing(Database(database_url)) as database:
        db = StoreFixture(database)
        claim = db.running(db.submit(), db.worker())
    command.downgrade(configuration(database_url), "0008")
    command.upgrade(configuration(database_url), "head")
    with closing(Database(database_url)) as database:
        db, bundle = StoreFixture(database), packed()
        store = store_on(database, blobs=Blobs(tmp_path / "blobs"))
        upload(store, bundle)
        named = submit(store, bundle)
        db.cancel(named)
        db.end(claim, EndReason.COMPLETED)
        for job_id in (claim.job_id, named):
            db.write(lambda session, job_id=job_id: deletion.delete_job(session, job_id))
        assert db.write(lambda session: bundles.remove(session, ADA.name, bundle.sha256))
        assert owners(db) == set()

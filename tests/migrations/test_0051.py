"""Revision 0051: files that were stored before stay as they are, and nobody has asked for them."""

from contextlib import closing

from alembic import command
from sqlalchemy import text

from migrations.actions import configuration
from store.db.database import Database
from store.db.tables import KeepRequest
from store.facts.output import NewArtifact
from store.rows import artifacts, keeping
from tests.store.fixture import StoreFixture
from torchyard.contract.job import EndReason


def test_a_file_from_before_the_revision_is_still_listed_and_files_can_be_asked_for(database_url: str) -> None:
    with closing(Database(database_url)) as database:
        db = StoreFixture(database)
        worker = db.worker()
        claim = db.running(db.submit(), worker)
        db.record(claim, seq=0, artifacts=[NewArtifact("plots/loss.png", 5, "1" * 64, modified_ns=7)])
        db.end(claim, EndReason.COMPLETED)
    command.downgrade(configuration(database_url), "0050")
    with closing(Database(database_url)) as database, database.read() as session:
        assert [*session.execute(text("SELECT path, size FROM artifacts"))] == [("plots/loss.png", 5)]
    command.upgrade(configuration(database_url), "head")
    with closing(Database(database_url)) as database:
        db = StoreFixture(database)
        (found,) = db.read(lambda session: artifacts.after(session, claim.job_id, limit=10, kept=None))
        assert (found.path, found.size, found.modified_ns, found.kept) == ("plots/loss.png", 5, None, False)
        (row,) = db.read(lambda session: artifacts.room(session, claim.job_id)).stored
        assert not row.asked
        asked = KeepRequest(job_id=claim.job_id, worker_id=worker, attempt=1, paths=["results/"])
        db.write(lambda session: session.add(asked))
        assert [list(kept.paths) for kept in db.read(lambda session: keeping.unanswered(session, worker, limit=9))] == [
            ["results/"]
        ]

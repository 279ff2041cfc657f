"""Revision 0014 writes the text that a search reads, for the jobs of the version before."""

from contextlib import closing

from alembic import command

from migrations.__main__ import configuration
from store.db.database import Database
from store.queries import listing
from store.queries.listing import JobFilter
from store.rows.access import SERVICE
from tests.store.fixture import StoreFixture


def test_jobs_of_the_version_before_are_found_by_a_search(database_url: str) -> None:
    with closing(Database(database_url)) as database:
        job_id = StoreFixture(database).submit(name="Cracks", labels={"city": "Köln"})
        other = StoreFixture(database).submit(name="other")
    command.downgrade(configuration(database_url), "0013")
    command.upgrade(configuration(database_url), "head")
    with closing(Database(database_url)) as database:
        db = StoreFixture(database)

        def found(q: str) -> list[str]:
            rows = db.read(lambda session: listing.jobs(session, JobFilter(q=q), caller=SERVICE, limit=9))
            return [listed.row.id for listed in rows]

        assert found("cRACK") == found("KÖLN") == found(job_id[4:]) == [job_id]
        assert found("ther") == [other]

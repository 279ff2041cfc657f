"""Revision 0053 counts events that somebody asked for and entries of the audit, and from then on the database does."""

from contextlib import closing

from alembic import command
import pytest

from migrations.actions import configuration
from store.commands import requests
from store.db.database import Database
from store.facts.callers import Caller
from store.rows import stored_counts
from tests.store.fixture import StoreFixture, store_on
from torchyard.contract.team import Role

ADA = Caller("ada", Role.MEMBER)


def _written(database_url: str) -> int:
    with closing(Database(database_url)) as database:
        return StoreFixture(database).read(lambda session: stored_counts.of(session, "ada")).written


@pytest.mark.thorough
def test_what_was_asked_for_before_is_counted(database_url: str) -> None:
    with closing(Database(database_url)) as database:
        job_id = StoreFixture(database).submit()
        fresh = _written(database_url)
        for action in ("pause", "resume"):
            requests.act(store_on(database), action, job_id, caller=ADA)
    before = _written(database_url)
    assert before > fresh + 4 * 256  # two events, and two entries
    command.downgrade(configuration(database_url), "0052")
    assert _written(database_url) < before - 4 * 256
    command.upgrade(configuration(database_url), "head")
    assert _written(database_url) == before

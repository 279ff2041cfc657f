"""The recorded outcomes of passes over the queue, once more on a database."""

from contextlib import closing

import pytest

from store.db.database import Database
from tests.databases import Databases, PostgreSQLDatabases, SQLiteDatabases
from tests.scheduling.outcomes import outcome_on, recorded
from tests.scheduling.worlds import COUNT, world


def test_some_worlds_end_as_recorded_on_a_database(sqlite: SQLiteDatabases) -> None:
    check(sqlite, range(0, COUNT, 50))


@pytest.mark.thorough
def test_all_worlds_end_as_recorded_on_sqlite(sqlite: SQLiteDatabases) -> None:
    check(sqlite, range(COUNT))


@pytest.mark.thorough
def test_many_worlds_end_as_recorded_on_postgresql(postgresql: PostgreSQLDatabases) -> None:
    check(postgresql, range(0, COUNT, 6))


def check(databases: Databases, numbers: range) -> None:
    expected = recorded()
    for number in numbers:
        with databases.migrated() as url, closing(Database(url)) as database:
            assert outcome_on(database, world(number)) == expected[number], number

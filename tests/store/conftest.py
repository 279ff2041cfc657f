"""A migrated database, a Redis and blobs of its own for each test."""

from collections.abc import Generator
from contextlib import closing
from pathlib import Path

from alembic import command
import pytest

from migrations.__main__ import configuration
from store.blobs import Blobs
from store.database import Database
from store.queue import Queue
from tests import databases
from tests.servers import redis_server
from tests.store.yard import Yard


@pytest.fixture(scope="session")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    """The URL of a database that is only ever copied: running the migration once is enough."""
    with databases.empty(tmp_path_factory.mktemp("migrated")) as url:
        command.upgrade(configuration(url), "head")
        yield url


@pytest.fixture
def database(migrated: str, tmp_path: Path) -> Generator[Database]:
    with databases.copy_of(migrated, tmp_path) as url, closing(Database(url)) as database:
        yield database


@pytest.fixture
def yard(database: Database) -> Yard:
    return Yard(database)


@pytest.fixture
def queue(tmp_path: Path) -> Generator[Queue]:
    with redis_server(tmp_path) as url, closing(Queue(url)) as queue:
        yield queue


@pytest.fixture
def blobs(tmp_path: Path) -> Blobs:
    return Blobs(tmp_path / "blobs")

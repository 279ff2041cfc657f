"""A store fixture, a Redis and blobs for each test."""

from collections.abc import Generator
from contextlib import closing
from pathlib import Path

import pytest

from store.blobs import Blobs
from store.db.database import Database
from store.queue import Queue
from tests.servers import redis_server
from tests.store.fixture import StoreFixture, a_service


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks a test's shapes on PostgreSQL as thorough, but the first: SQLite has them all. Each hook gets all items."""
    items = [item for item in items if item.path.parent == Path(__file__).parent]
    names, seen = {item.nodeid for item in items}, set[str]()
    for item in items:
        function, on_postgresql, _ = item.nodeid.partition("[postgresql-")
        if not on_postgresql or item.nodeid.replace("[postgresql-", "[sqlite-") not in names:
            continue
        if function in seen:
            item.add_marker(pytest.mark.thorough)
        seen.add(function)


@pytest.fixture
def db(database: Database) -> StoreFixture:
    return StoreFixture(database)


@pytest.fixture
def queue(tmp_path: Path) -> Generator[Queue]:
    with redis_server(tmp_path) as url, closing(Queue(url, service=a_service)) as queue:
        yield queue


@pytest.fixture
def blobs(tmp_path: Path) -> Blobs:
    return Blobs(tmp_path / "blobs")

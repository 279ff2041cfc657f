"""A store with a Redis, on both databases."""

from collections.abc import Generator
from contextlib import closing
from pathlib import Path

import pytest

from store.db.database import Database
from store.queue.announcing import Queue
from store.store import Store
from tests.servers import redis_server
from tests.store.fixture import StoreFixture, a_service, store_on


@pytest.fixture
def db(database: Database) -> StoreFixture:
    return StoreFixture(database)


@pytest.fixture
def queue(tmp_path: Path) -> Generator[Queue]:
    with redis_server(tmp_path) as url, closing(Queue(url, service=a_service)) as queue:
        yield queue


@pytest.fixture
def store(database: Database) -> Store:
    """A store without a Redis."""
    return store_on(database)

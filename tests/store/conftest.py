"""A store fixture, a Redis and blobs for each test."""

from collections.abc import Generator
from contextlib import closing
from pathlib import Path

import pytest

from store.blobs.folder import BlobFolder
from store.db.database import Database
from store.queue.announcing import Queue
from tests.servers import redis_server
from tests.store.fixture import StoreFixture, a_service


@pytest.fixture
def db(database: Database) -> StoreFixture:
    return StoreFixture(database)


@pytest.fixture
def queue(tmp_path: Path) -> Generator[Queue]:
    with redis_server(tmp_path) as url, closing(Queue(url, service=a_service)) as queue:
        yield queue


@pytest.fixture
def blobs(tmp_path: Path) -> BlobFolder:
    return BlobFolder(tmp_path / "blobs")

"""A house for the scenes: a database and blobs of its own for each test, and a Redis that is empty."""

from collections.abc import Generator
from pathlib import Path

import pytest

from store.database import Database
from tests.failpoints.house import House
from tests.servers import redis_server


@pytest.fixture(scope="session")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    with redis_server(tmp_path_factory.mktemp("redis")) as url:
        yield url


@pytest.fixture
def house(tmp_path: Path, database: Database, redis_url: str) -> Generator[House]:
    house = House(tmp_path, database, redis_url)
    house.queue.rebuild(list)  # the server is shared by the session's tests
    yield house
    house.queue.close()

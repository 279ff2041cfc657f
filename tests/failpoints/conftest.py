"""A house for the scenes: a database and blobs of its own for each test, and a Redis that is empty."""

from collections.abc import Generator
from pathlib import Path
from zlib import crc32

import pytest

from store.db.database import Database
from tests.failpoints.fixture import FailpointFixture
from tests.servers import redis_server

_PLACES = {"house", "site"}
"""Fixtures, by which it is told what looks at points."""
_SHARE = 12
"""Where time counts, a test looks at its first point on SQLite, and at one in so many others: always the same."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All hooks of this name get the items of all folders."""
    seen: set[str] = set()
    for item in items:
        if item.path.parent != Path(__file__).parent or not _PLACES & {*getattr(item, "fixturenames", ())}:
            continue
        function = item.nodeid.partition("[")[0]
        first = "[sqlite" in item.name and function not in seen
        if first:
            seen.add(function)
        elif crc32(item.name.encode()) % _SHARE:
            item.add_marker(pytest.mark.thorough)


@pytest.fixture(scope="session")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    with redis_server(tmp_path_factory.mktemp("redis")) as url:
        yield url


@pytest.fixture
def service(tmp_path: Path, database: Database, redis_url: str) -> Generator[FailpointFixture]:
    service = FailpointFixture(tmp_path, database, redis_url)
    service.queue.rebuild(list)  # the server is shared by the session's tests
    yield service
    service.queue.close()

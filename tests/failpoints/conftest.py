"""A store for the actions: each test has its own database and blobs, and Redis keys of its own."""

from collections.abc import Generator
from pathlib import Path

import pytest

from store.db.database import Database
from tests.failpoints.fixture import FailpointFixture
from tests.servers import redis_server

_FIXTURES = {"service", "host"}
"""Fixtures of the tests that are parametrized by failpoints."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks all parameters as thorough but a test's first failpoint on SQLite. Each hook gets all folders' items."""
    seen: set[str] = set()
    for item in items:
        if item.path.parent != Path(__file__).parent or not _FIXTURES & {*getattr(item, "fixturenames", ())}:
            continue
        function = item.nodeid.partition("[")[0]
        first = "[sqlite" in item.name and function not in seen
        if first:
            seen.add(function)
        else:
            item.add_marker(pytest.mark.thorough)


@pytest.fixture(scope="session")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    with redis_server(tmp_path_factory.mktemp("redis")) as url:
        yield url


@pytest.fixture
def service(tmp_path: Path, database: Database, redis_url: str) -> Generator[FailpointFixture]:
    service = FailpointFixture(tmp_path, database, redis_url)
    yield service
    service.queue.close()

from collections.abc import Iterator
from pathlib import Path

import pytest

from api import forecasts
from store.db.database import Database
from tests.api.service import ApiFixture
from tests.databases import Databases
from tests.servers import redis_server

forecasts.PROCESSOR_S, forecasts.WITHIN_S = 10.0, 60.0  # else a busy machine omits forecasts


@pytest.fixture(scope="session")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with redis_server(tmp_path_factory.mktemp("redis")) as url:
        yield url


@pytest.fixture(scope="session")
def databases(request: pytest.FixtureRequest) -> Databases:
    """SQLite, except in tests marked with `tests.api.service.both_databases`."""
    return request.getfixturevalue(getattr(request, "param", "sqlite"))


@pytest.fixture
def service(tmp_path: Path, database: Database, redis_url: str) -> Iterator[ApiFixture]:
    """An empty service. All tests of the session share the Redis server: its keys begin with the service's id."""
    built = ApiFixture(tmp_path, database, redis_url)
    built.begin()
    with built.client:
        yield built
    if "queue" in vars(built):  # it is made where a test uses it
        built.queue.close()

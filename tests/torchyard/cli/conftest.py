from collections.abc import Generator, Iterator

import pytest

from tests.databases import SQLiteDatabases
from tests.torchyard.cli.service import Team, serving_team
from tests.torchyard.client.fake_server import FakeServer, serving


@pytest.fixture(scope="module")
def team(tmp_path_factory: pytest.TempPathFactory, sqlite: SQLiteDatabases) -> Generator[Team]:
    with serving_team(tmp_path_factory.mktemp("team"), sqlite) as team:
        yield team


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with serving() as server:
        server.on("/v1/me", {"name": "admin", "role": "admin", "scopes": []})
        yield server

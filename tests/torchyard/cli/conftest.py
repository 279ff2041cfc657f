from collections.abc import Generator

import pytest

from tests.databases import SQLiteDatabases
from tests.torchyard.cli.service import Team, serving_team


@pytest.fixture(scope="module")
def team(tmp_path_factory: pytest.TempPathFactory, sqlite: SQLiteDatabases) -> Generator[Team]:
    with serving_team(tmp_path_factory.mktemp("team"), sqlite) as team:
        yield team

from collections.abc import Generator
from pathlib import Path

import pytest

from tests.databases import Databases
from tests.e2e.service import Service, running


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks the PostgreSQL variants as thorough: the chaos run covers more. Each hook gets the items of all folders."""
    for item in items:
        if item.path.parent == Path(__file__).parent and "[postgresql" in item.name:
            item.add_marker(pytest.mark.thorough)


@pytest.fixture(scope="session")
def service(databases: Databases, tmp_path_factory: pytest.TempPathFactory) -> Generator[Service]:
    """Runs a service on each kind of database, for all tests that do not break it."""
    folder = tmp_path_factory.mktemp("service")
    with databases.empty() as url, running(Service(folder, database=url)) as service:
        yield service

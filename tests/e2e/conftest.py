from pathlib import Path

import pytest

from tests.e2e.service import Service


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks the PostgreSQL variants as thorough: the chaos run covers more. Each hook gets the items of all folders."""
    for item in items:
        if item.path.parent == Path(__file__).parent and "[postgresql" in item.name:
            item.add_marker(pytest.mark.thorough)


@pytest.fixture(scope="session")
def service(shared_service: Service) -> Service:
    """The service that runs on each kind of database, for all tests that do not break it."""
    return shared_service

from pathlib import Path

import pytest

from tests.e2e.service import Service


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """On PostgreSQL, the chaos run lives through more than these do. All hooks of this name get the items of all."""
    for item in items:
        if item.path.parent == Path(__file__).parent and "[postgresql" in item.name:
            item.add_marker(pytest.mark.thorough)


@pytest.fixture
def service(tmp_path: Path, empty_url: str) -> Service:
    """A service on each kind of database, not started yet."""
    return Service(tmp_path, database=empty_url)

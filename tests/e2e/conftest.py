from pathlib import Path

import pytest

from tests.e2e.service import Service


@pytest.fixture
def service(tmp_path: Path, empty_url: str) -> Service:
    """A service on each kind of database, not started yet."""
    return Service(tmp_path, database=empty_url)

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.databases import Databases, SQLiteDatabases
from tests.worker.attempt import Attempt
from worker.engines.local import process


@pytest.fixture(scope="session")
def databases(sqlite: SQLiteDatabases) -> Databases:
    """What the worker does is the same on each; that the store is, tests/store shows."""
    return sqlite


@pytest.fixture
def attempt(tmp_path: Path) -> Iterator[Attempt]:
    """An attempt of a job of its own; whatever it leaves is killed."""
    created = Attempt.create(tmp_path)
    yield created
    assert process.kill_attempt(created.job_id, created.number) == []

from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from store.db.database import Database
from store.queue import Queue
from tests import warm
from tests.databases import Databases
from tests.store.fixture import StoreFixture
from tests.worker.attempt import Attempt
from tests.worker.rack import Rack
from worker.engines.local import process
from worker.engines.local.warm.keeper import WarmProcess


@pytest.fixture(scope="session")
def databases(request: pytest.FixtureRequest) -> Databases:
    """SQLite: the store's own tests run on both. A test of which SQL is the matter asks for both with `on_both`."""
    return request.getfixturevalue(getattr(request, "param", "sqlite"))


@pytest.fixture(scope="session")
def warm_process() -> Generator[WarmProcess]:
    """Nobody ends it, or stops it: it is there for every test of this process."""
    with warm.warm_process() as started:
        yield started


@pytest.fixture
def rack(tmp_path: Path, database: Database) -> Rack:
    return Rack(StoreFixture(database), Queue(f"unix://{tmp_path / 'nowhere.sock'}"))


@pytest.fixture
def attempt(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Attempt]:
    """An attempt of a job of its own; whatever it leaves is killed.

    Its parameter may be `warm`, or `agent`: torchrun by a supervisor that is a fork of the warm process.
    """
    way = getattr(request, "param", "cold")
    warm_process = None if way == "cold" else request.getfixturevalue("warm_process")
    created = Attempt.create(tmp_path, warm=warm_process, launcher="warm" if way == "warm" else "torchrun")
    yield created
    assert process.kill_attempt(created.job_id, created.number) == []

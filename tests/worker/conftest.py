from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from store.db.database import Database
from store.queue.announcing import Queue
from tests import servers
from tests.databases import Databases
from tests.processes import kill_attempt
from tests.store.fixture import StoreFixture, a_service
from tests.worker.attempt import Attempt
from tests.worker.reaching import Reached
from tests.worker.schedulers import SchedulersFixture
from worker.curves import following
from worker.host.untrusted import remove_inside

following.WAIT_AT_END_S = 60.0  # on a busy machine the process that parses may answer later


@pytest.fixture(scope="session")
def databases(request: pytest.FixtureRequest) -> Databases:
    """SQLite. The store's own tests run on both databases, and a test that depends on the SQL uses `on_both`."""
    return request.getfixturevalue(getattr(request, "param", "sqlite"))


@pytest.fixture(scope="session")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A Redis for daemons. Each database is a service of its own, which has keys and channels of its own there."""
    with servers.redis_server(tmp_path_factory.mktemp("redis")) as url:
        yield url


@pytest.fixture
def removed_afterwards(tmp_path: Path) -> Iterator[None]:
    """Removes the test's folder. pytest's own removal fails at deep trees."""
    yield
    remove_inside(tmp_path.parent, tmp_path.name)


@pytest.fixture
def schedulers(tmp_path: Path, database: Database) -> SchedulersFixture:
    return SchedulersFixture(StoreFixture(database), Queue(f"unix://{tmp_path / 'nowhere.sock'}", service=a_service))


@pytest.fixture
def attempt(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Attempt]:
    """An attempt of a job of its own. The processes that it leaves are killed.

    The parameter, or else the module's `START`, says how it starts: `cold` (torchrun, the default), `warm` (forks), or
    `agent` (torchrun started by a supervisor that is a fork of the warm process).
    """
    start = getattr(request, "param", getattr(request.module, "START", "cold"))
    warm_process = None if start == "cold" else request.getfixturevalue("warm_process")
    created = Attempt.create(tmp_path, warm=warm_process, launcher="warm" if start == "warm" else "torchrun")
    yield created
    assert kill_attempt(created.job_id, created.number) == []


@pytest.fixture
def reach(attempt: Attempt) -> Iterator[Callable[[], Reached]]:
    """Makes a client that reaches into the attempt. Its connections are closed in the end."""
    made: list[Reached] = []

    def make() -> Reached:
        made.append(Reached.into(attempt.run))
        return made[-1]

    yield make
    for each in made:
        each.cut()

"""Fixtures for both kinds of databases: a test that uses one runs on each."""

from collections.abc import Generator
from contextlib import closing
from functools import cache
import gc
import multiprocessing.util
import os
from pathlib import Path
import sys
import tempfile
from typing import Any, cast

import httpx2
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers
import pytest

from store.db.database import Database
from store.redis import client as redis_client
from tests import approved, forks, repeats, warm
from tests.databases import Databases, PostgreSQLDatabases, SQLiteDatabases, in_memory, migrated_postgresql
from tests.e2e.shared import home, shared_service
from tests.postgresql import postgresql_server
from tests.running.quick import QUICK
from torchyard.host.collector import paused
from worker.engines.local.warm.manager import WarmProcess

__all__ = ["home", "shared_service"]

pytest_plugins = ["tests.running.plugin"]
os.environ.setdefault("OMP_NUM_THREADS", "1")  # test processes share the cores, and threads of torch spin
# A busy machine is no failure.
settings.register_profile("thorough", deadline=None, suppress_health_check=[HealthCheck.too_slow])
# The same examples each time: a quick run is red by what was changed. The thorough run explores.
settings.register_profile("quick", settings.get_profile("thorough"), max_examples=25, derandomize=True)
QUICK_S = redis_client.QUICK_S
"""How long requests wait for Redis outside of tests: on a busy machine it may answer later."""
redis_client.QUICK_S = 2.0
transports: Any = sys.modules[httpx2.HTTPTransport.__init__.__module__]  # the class names the package
_new_context = transports.create_ssl_context
_context_of_transports = cache(_new_context)


def pytest_addoption(pluginmanager: pytest.PytestPluginManager) -> None:
    pluginmanager.register(approved)


def _ssl_context(verify: object = True, **options: Any) -> object:
    """Reads the certificates of the system once, not for each transport: that takes as long as ten requests."""
    of_transport = verify is True and {"cert", "trust_env"} == options.keys() and options["cert"] is None
    return (_context_of_transports if of_transport else _new_context)(verify, **options)


transports.create_ssl_context = _ssl_context


def pytest_configure(config: pytest.Config) -> None:
    """Tries fewer random examples where repeats are left out, and takes none of them from the text of all modules.

    To read those takes seconds, and a number anywhere in the code would change the examples of all tests.
    """
    is_quick = config.getoption("markexpr") == QUICK
    settings.load_profile("quick" if is_quick else "thorough")
    if is_quick:
        cast(Any, providers)._get_local_constants = lambda: cast(Any, providers)._local_constants


def pytest_worker_started() -> None:
    """Has the collector look for cycles more rarely: to look takes a twentieth of what tests cost."""
    gc.set_threshold(10_000, 20, 50)


def pytest_workers_starting(session: pytest.Session) -> None:
    forks.start_server(tests=len(session.items))


def pytest_unconfigure() -> None:
    forks.end_server()


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """What the tests import stays: looking through it again and again takes a fifth of the collection."""
    del session
    with paused():
        return (yield)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Comes after those of the folders, which mark repeats of their own."""
    config.stash[approved.COLLECTED] = list(items)
    repeats.leave_out(items)


@pytest.fixture(autouse=True)
def process_state() -> Generator[None]:
    """Restores what programs and compilers that a test runs in this process change of it."""
    mask, folder, depth = os.umask(0o022), Path.cwd(), sys.getrecursionlimit()
    os.umask(mask)
    yield
    os.umask(mask)
    os.chdir(folder)
    sys.setrecursionlimit(depth)


@pytest.fixture(scope="session", autouse=True)
def temporary_files(tmp_path_factory: pytest.TempPathFactory) -> Generator[None]:
    """Has this process and those that it starts keep their temporary files in a folder that is removed at the end.

    Its path is short, as it is part of the paths of sockets.
    """
    tmp_path_factory.getbasetemp()
    multiprocessing.util.get_temp_dir()  # it removes its own at the exit of this process, after ours
    with (
        tempfile.TemporaryDirectory(prefix="ty-", ignore_cleanup_errors=True) as folder,
        pytest.MonkeyPatch.context() as patch,
    ):
        Path(folder).chmod(0o711)  # PostgreSQL's own user has files in it
        patch.setenv("TMPDIR", folder)
        patch.setattr(tempfile, "tempdir", None)
        yield


@pytest.fixture(scope="session")
def sqlite() -> Generator[SQLiteDatabases]:
    """Keeps the databases in memory where that is possible."""
    with tempfile.TemporaryDirectory(prefix="torchyard-sqlite-", dir=in_memory()) as folder:
        yield SQLiteDatabases(Path(folder))


@pytest.fixture(scope="session")
def postgresql() -> Generator[PostgreSQLDatabases]:
    with postgresql_server(data=migrated_postgresql()) as server, closing(PostgreSQLDatabases(server)) as databases:
        yield databases


@pytest.fixture(scope="session", params=["sqlite", "postgresql"])
def databases(request: pytest.FixtureRequest) -> Databases:
    return request.getfixturevalue(request.param)


@pytest.fixture(scope="session")
def warm_process() -> Generator[WarmProcess]:
    """The warm process of all tests in this pytest process. No test may end or stop it."""
    with warm.warm_process() as started:
        yield started


@pytest.fixture
def empty_url(databases: Databases) -> Generator[str]:
    """The URL of a database without tables."""
    with databases.empty() as url:
        yield url


@pytest.fixture
def database_url(databases: Databases) -> Generator[str]:
    """The URL of a migrated database, without a row."""
    with databases.migrated() as url:
        yield url


@pytest.fixture
def database(databases: Databases, database_url: str) -> Generator[Database]:
    """A migrated database, without a row."""
    with databases.opened.at(database_url) as database:
        yield database

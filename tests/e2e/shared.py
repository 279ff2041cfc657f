"""The service that runs for all tests of one pytest process that do not break it, and the home of its user."""

from collections.abc import Generator
import contextlib
from pathlib import Path
import shlex

import pytest

from tests.databases import Databases, SQLiteDatabases
from tests.e2e.documented import ROOT, started_by
from tests.e2e.service import Service, running, until
from torchyard.client import Client

HOME_FILES = (".ssh/id_ed25519", ".netrc", ".config/gh/hosts.yml", ".aws/credentials", ".cache/huggingface/token")


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The home of the service's user, with keys and login files."""
    folder = tmp_path_factory.mktemp("home")
    for name in HOME_FILES:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("key")
    return folder


@pytest.fixture(scope="session")
def shared_service(databases: Databases, home: Path, tmp_path_factory: pytest.TempPathFactory) -> Generator[Service]:
    """Runs a service on each kind of database by the command of `make up`. On SQLite it is the file that `up` makes."""
    with contextlib.ExitStack() as stack:
        url = None if isinstance(databases, SQLiteDatabases) else stack.enter_context(databases.empty())
        command = shlex.split(started_by("up"))
        command[0] = str(ROOT / command[0])
        service = Service(tmp_path_factory.mktemp("service"), database=url, env={"HOME": str(home)}, command=command)
        stack.enter_context(running(service))
        client = service.client
        until(lambda: _starts_warm(client), what="jobs start warm")  # those that start cold cost more
        yield service


def _starts_warm(client: Client) -> bool:
    return any(worker.starts is not None and worker.starts.mode == "warm" for worker in client.workers.list())

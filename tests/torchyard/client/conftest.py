from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from tests.torchyard.client.drivers import DRIVERS, Connect
from tests.torchyard.client.fake_server import TOKEN, FakeServer, serving
from torchyard.client import Client


@pytest.fixture(autouse=True)
def no_known_server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An empty working directory, and neither a login nor variables that name a server."""
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for name in ("TORCHYARD_URL", "TORCHYARD_TOKEN", "TORCHYARD_SERVER"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with serving() as server:
        yield server


@pytest.fixture(params=list(DRIVERS))
def connect(request: pytest.FixtureRequest) -> Connect:
    return DRIVERS[request.param]


@pytest.fixture
def client(server: FakeServer, connect: Connect) -> Generator[Client]:
    with connect(server.url, TOKEN) as client:
        yield client

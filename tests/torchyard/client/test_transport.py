"""Whom a client trusts that calls a server by TLS: the system's authorities, and those that variables name."""

from collections.abc import Generator
from pathlib import Path

import pytest

from tests.controller.notifications.certificates import certificate
from tests.torchyard.client.answers import page
from tests.torchyard.client.drivers import Connect
from tests.torchyard.client.fake_server import TOKEN, FakeServer, serving
from torchyard.contract.errors import ConfigError, ServerUnreachable

VARIABLES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO")


@pytest.fixture(autouse=True)
def without_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def authority(tmp_path: Path) -> Path:
    """The file of the authority that vouches for the server."""
    return tmp_path / "certificate.pem"


@pytest.fixture
def secured(tmp_path: Path) -> Generator[FakeServer]:
    _, context = certificate(tmp_path, "localhost")
    with serving() as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        server.on("/v1/jobs", page([]))
        yield server


def listed(connect: Connect, server: FakeServer) -> int:
    with connect(f"https://localhost:{server.server_port}", TOKEN, patience=0) as client:
        return len([*client.jobs.list()])


def test_the_authorities_of_a_variable_are_trusted(
    secured: FakeServer, authority: Path, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ServerUnreachable, match="certificate"):
        listed(connect, secured)
    assert secured.requests == []
    for variable in VARIABLES:
        with monkeypatch.context() as patch:
            patch.setenv(variable, str(authority))
            assert listed(connect, secured) == 0, variable
    assert len(secured.requests) == len(VARIABLES)


def test_authorities_that_cannot_be_read_are_named(
    authority: Path, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in VARIABLES:
        with monkeypatch.context() as patch, pytest.raises(ConfigError, match=variable):
            patch.setenv(variable, str(authority))
            connect("https://localhost:1", TOKEN)

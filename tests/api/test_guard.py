"""The `Host` names that the service accepts, and its security headers."""

from pathlib import Path
import socket

from fastapi import Response
import pytest
from starlette.testclient import TestClient

from api.app import create_app
from api.middleware.browsers import SECURITY_HEADERS
from api.settings import Settings
from tests.api.service import TOKEN, ApiFixture
from tests.api.test_problems import assert_problem


def client_of(folder: Path, **settings: str) -> TestClient:
    """A client of an application without a database and Redis, which these requests do not need."""
    return TestClient(create_app(Settings.model_validate({"data_dir": folder, "token": TOKEN, **settings})))


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> TestClient:
    return client_of(tmp_path_factory.mktemp("guard"), allowed_hosts="yard.example.com, *.lab.example")


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "LocalHost:8000",
        "localhost.",
        "127.0.0.1",
        "127.0.0.1:8000",
        "10.1.2.3",
        "[::1]",
        "[::1]:8000",
        "[2001:db8::7]",
        socket.gethostname(),
        "yard.example.com",
        "Yard.Example.Com:443",
        "gpu-1.lab.example",
        "a.b.lab.example",
    ],
)
def test_addresses_own_names_and_allowed_names_are_answered(client: TestClient, host: str) -> None:
    assert client.get("/healthz", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "yard.example.com.evil.example",
        "not-yard.example.com",
        "lab.example",
        "evil-lab.example",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "1.2.3.4.5",
    ],
)
def test_another_name_is_refused_with_the_setting_that_would_allow_it(client: TestClient, host: str) -> None:
    for path in ("/healthz", "/v1/jobs", "/docs", "/nothing"):
        found = assert_problem(client.get(path, headers={"Host": host}), 421, "host_not_allowed")
        assert repr(host) in found.detail
        assert "TORCHYARD_ALLOWED_HOSTS" in found.detail


@pytest.mark.parametrize("host", ["", "localhost:x", "a b", "local/host", "[::1", "[nonsense]", "user@localhost", "é"])
def test_a_malformed_host_is_refused(client: TestClient, host: str) -> None:
    answer = client.get("/healthz", headers=[(b"Host", host.encode())])
    assert_problem(answer, 400, "malformed_http")


def test_an_asterisk_allows_every_name(tmp_path: Path) -> None:
    assert client_of(tmp_path, allowed_hosts="*").get("/healthz", headers={"Host": "any.example"}).status_code == 200


def test_the_name_of_its_own_host_setting_is_allowed(tmp_path: Path) -> None:
    client = client_of(tmp_path, host="box.example", token="x" * 32)
    assert client.get("/healthz", headers={"Host": "box.example"}).status_code == 200


def test_a_route_keeps_the_headers_that_it_sets_itself(service: ApiFixture) -> None:
    def page() -> Response:
        return Response(headers={"Content-Security-Policy": "default-src 'self'", "Cache-Control": "max-age=60"})

    service.app.add_api_route("/page", page)
    headers = service.client.get("/page").headers
    assert headers.get_list("content-security-policy") == ["default-src 'self'"]
    assert headers.get_list("cache-control") == ["max-age=60"]
    assert headers["x-content-type-options"] == "nosniff"


def test_an_internal_error_has_the_security_headers_too(service: ApiFixture) -> None:
    def broken() -> None:
        raise RuntimeError

    service.app.add_api_route("/broken", broken)
    answer = service.client.get("/broken")
    assert answer.status_code == 500
    for name, value in SECURITY_HEADERS:
        assert answer.headers.get_list(name.decode()) == [value.decode()]

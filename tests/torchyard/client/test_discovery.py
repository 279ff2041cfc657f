"""How a client finds its server."""

import json
from pathlib import Path

import pytest

from tests.torchyard.client.drivers import Connect
from tests.torchyard.client.fake_server import TOKEN
from torchyard.contract.errors import ConfigError, NotAuthorized, ServerUnreachable, TorchyardError


def test_the_server_is_searched_in_the_documented_order(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, connect: Connect
) -> None:
    with pytest.raises(ServerUnreachable, match="torchyard up"):
        connect()
    _write_server(tmp_path / "work" / ".torchyard" / "server.json", "local")
    assert _found(connect) == ("http://local", "token-local")
    _write_server(tmp_path / "config" / "torchyard" / "login.json", "login")
    assert _found(connect) == ("http://login", "token-login")
    monkeypatch.setenv("TORCHYARD_URL", "http://env/")
    with pytest.raises(NotAuthorized, match="http://env"):
        connect()
    monkeypatch.setenv("TORCHYARD_TOKEN", "token-env")
    assert _found(connect) == ("http://env", "token-env")
    assert _found(connect, "http://given", "token-given") == ("http://given", "token-given")


@pytest.mark.parametrize("url", ["nonsense", "ftp://x", "http://[::", "http://x:99999", "http://"])
def test_an_invalid_address_is_a_config_error(url: str, connect: Connect) -> None:
    with pytest.raises(ConfigError, match=r"http://HOST:PORT"):
        connect(url, TOKEN)


@pytest.mark.parametrize("token", ["wörng", "a\nb"])
def test_an_invalid_token_is_not_sent(token: str, connect: Connect) -> None:
    with pytest.raises(NotAuthorized, match="characters that are not printable ASCII"):
        connect("http://127.0.0.1:1", token)


def test_an_unreadable_server_file_is_named_in_the_error(tmp_path: Path, connect: Connect) -> None:
    (tmp_path / "server.json").write_text("{")
    with pytest.raises(TorchyardError, match=r"server\.json"):
        connect(data_dir=tmp_path)


def _found(connect: Connect, *given: str) -> tuple[str, str]:
    with connect(*given) as client:
        return client.server.url, client.server.token


def _write_server(path: Path, name: str) -> None:
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"url": f"http://{name}", "token": f"token-{name}"}))

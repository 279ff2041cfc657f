"""How a client finds its server."""

import json
from pathlib import Path
from typing import IO, Any

import pytest

from tests.approved import Approved
from tests.torchyard.client.drivers import Connect
from tests.torchyard.client.fake_server import TOKEN
from torchyard.contract.errors import ConfigError, NotAuthorized, ServerUnreachable, TorchyardError
from torchyard.host.privatefile import write_held


def test_the_server_is_searched_in_the_documented_order(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, connect: Connect
) -> None:
    with pytest.raises(ServerUnreachable, match="torchyard up"):
        connect()
    with _serving(tmp_path / "work" / ".torchyard"):
        assert _found(connect) == ("http://local", "token-local")
        _write_logins(tmp_path, default="rack")
        assert _found(connect) == ("http://rack", "token-rack")
    assert _found(connect) == ("http://rack", "token-rack")
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
def test_an_invalid_token_is_not_sent(token: str, connect: Connect, approved: Approved) -> None:
    with pytest.raises(NotAuthorized) as raised:
        connect("http://127.0.0.1:1", token)
    assert str(raised.value) == approved("message")


def test_an_unreadable_server_file_is_named_in_the_error(tmp_path: Path, connect: Connect) -> None:
    with write_held(tmp_path / "server.json", "{"), pytest.raises(TorchyardError, match=r"server\.json"):
        connect(data_dir=tmp_path)


@pytest.mark.parametrize("made", ["as git does", "private", "a link"])
def test_a_server_file_that_came_with_a_folder_is_refused(
    tmp_path: Path, connect: Connect, made: str, approved: Approved
) -> None:
    """Somebody else chose the address in it: neither code nor a token is sent there."""
    path, other = tmp_path / "clone" / "server.json", tmp_path / "other"
    _write(path, {"url": "http://evil.example", "token": "theirs"})
    with write_held(other, path.read_text()):
        if made == "as git does":
            path.chmod(0o644)
        elif made == "a link":
            path.unlink()
            path.symlink_to(other)
        with pytest.raises(TorchyardError) as raised:
            connect(data_dir=path.parent)
    assert str(raised.value) == approved.of_row("message", tmp_path=tmp_path)


def test_the_file_of_a_service_that_was_killed_is_not_used(tmp_path: Path, connect: Connect) -> None:
    with _serving(tmp_path):
        pass
    with pytest.raises(ServerUnreachable, match="torchyard up"):
        connect(data_dir=tmp_path)


def test_a_token_is_only_used_for_the_server_that_it_was_given_with(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, connect: Connect, approved: Approved
) -> None:
    _write_logins(tmp_path, default="rack")
    monkeypatch.setenv("TORCHYARD_TOKEN", "token-env")
    with pytest.raises(ConfigError) as raised:
        connect()
    assert str(raised.value) == approved("message")
    assert _found(connect, "http://given") == ("http://given", "token-env")
    monkeypatch.setenv("TORCHYARD_URL", "http://env")
    assert _found(connect) == ("http://env", "token-env")
    assert _found(connect, "http://lab/") == ("http://lab", "token-lab")
    with pytest.raises(NotAuthorized, match="torchyard login http://given"):
        connect("http://given")


def test_a_variable_names_one_of_several_logins(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, connect: Connect, approved: Approved
) -> None:
    _write_logins(tmp_path, default="rack")
    assert _found(connect) == ("http://rack", "token-rack")
    monkeypatch.setenv("TORCHYARD_SERVER", "lab")
    assert _found(connect) == ("http://lab", "token-lab")
    monkeypatch.setenv("TORCHYARD_URL", "http://rack")
    assert _found(connect) == ("http://rack", "token-rack")
    monkeypatch.setenv("TORCHYARD_SERVER", "other")
    with pytest.raises(ConfigError) as raised:
        connect()
    assert str(raised.value) == approved("message")


def test_logins_without_a_default_are_not_used(tmp_path: Path, connect: Connect, approved: Approved) -> None:
    _write_logins(tmp_path, default=None)
    with pytest.raises(ServerUnreachable) as raised:
        connect()
    assert str(raised.value) == approved("message")


def test_a_login_file_that_others_can_read_is_refused(tmp_path: Path, connect: Connect, approved: Approved) -> None:
    path = _write_logins(tmp_path, default="rack")
    path.chmod(0o640)
    with pytest.raises(ConfigError) as raised:
        connect()
    assert str(raised.value) == approved("message", path=path)


@pytest.mark.parametrize("text", ["{", "[]", '{"servers": {"rack": {"url": "http://rack"}}}'])
def test_a_damaged_login_file_is_named_in_the_error(
    tmp_path: Path, connect: Connect, text: str, approved: Approved
) -> None:
    path = _write_logins(tmp_path, default="rack")
    path.write_text(text)
    with pytest.raises(ConfigError) as raised:
        connect()
    assert str(raised.value) == approved.of_row("message", tmp_path=tmp_path)


def _found(connect: Connect, *given: str) -> tuple[str, str]:
    with connect(*given) as client:
        return client.server.url, client.server.token


def _serving(data_dir: Path) -> IO[str]:
    """Writes what a running `torchyard up` does. It runs until the file is closed."""
    data_dir.mkdir(parents=True, exist_ok=True)
    return write_held(data_dir / "server.json", json.dumps({"url": "http://local", "token": "token-local"}))


def _write_logins(folder: Path, *, default: str | None) -> Path:
    servers = {name: {"url": f"http://{name}", "token": f"token-{name}"} for name in ("rack", "lab")}
    path = folder / "config" / "torchyard" / "login.json"
    _write(path, {"default": default, "servers": servers})
    return path


def _write(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(content))
    path.chmod(0o600)

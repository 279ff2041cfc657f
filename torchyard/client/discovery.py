"""Finds the server and its token for the client and the command line."""

from dataclasses import dataclass
import json
import os
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from torchyard.contract.errors import ConfigError, NotAuthorized, ServerUnreachable

SERVER_FILE = "server.json"
"""A file of the data directory. `torchyard up` writes it, and removes it when it ends."""


@dataclass(frozen=True)
class Server:
    """A server's address, its token, and the advice to print if it does not answer."""

    url: str
    token: str
    advice: str


def discover(url: str | None = None, token: str | None = None, *, data_dir: Path = Path(".torchyard")) -> Server:
    """Returns the server that the arguments name, else TORCHYARD_URL and TORCHYARD_TOKEN, else the user's login, else
    the `server.json` in `data_dir`. Raises ServerUnreachable if none of them names a server, NotAuthorized if no token
    is known, and ConfigError if the address is not valid.
    """
    url = url or os.environ.get("TORCHYARD_URL")
    token = token or os.environ.get("TORCHYARD_TOKEN")
    found = next((server for server in _from_files(data_dir) if url is None or server.url == url.rstrip("/")), None)
    if url is None and found is None:
        raise ServerUnreachable(
            f"no server is known: start one here with `torchyard up` (there is no {data_dir / SERVER_FILE}),"
            " or set TORCHYARD_URL and TORCHYARD_TOKEN"
        )
    if found is not None:
        return _validated(Server(found.url, token or found.token, found.advice))
    assert url is not None
    if not token:
        raise NotAuthorized(f"no token is known for {url}: set TORCHYARD_TOKEN")
    return _validated(Server(url.rstrip("/"), token, "is TORCHYARD_URL right, and does the server run?"))


def _validated(server: Server) -> Server:
    try:
        address = urlsplit(server.url)
        valid = address.scheme in {"http", "https"} and bool(address.hostname) and address.port != 0
    except ValueError:  # an incomplete IPv6 address, or a port above 65535
        valid = False
    if not valid:
        raise ConfigError(f"{server.url!r} is not a server's address: write http://HOST:PORT")
    if not (server.token.isascii() and server.token.isprintable()):
        raise NotAuthorized(f"the token for {server.url} is not valid: it has characters that are not printable ASCII")
    return server


def _from_files(data_dir: Path) -> list[Server]:
    config = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    login, local = config / "torchyard" / "login.json", data_dir / SERVER_FILE
    places = (
        (login, f"is the server of your login ({login}) down?"),
        (local, f"it is the address in {local}; start it again with `torchyard up`"),
    )
    return [
        Server(_text(path, found, "url").rstrip("/"), _text(path, found, "token"), advice)
        for path, advice in places
        if (found := _read(path)) is not None
    ]


def _read(path: Path) -> dict[str, Any] | None:
    try:
        found = json.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from None
    if not isinstance(found, dict):
        raise ConfigError(f"{path} is not a JSON object")
    return found


def _text(path: Path, found: dict[str, Any], key: str) -> str:
    value = found.get(key)
    if not isinstance(value, str):
        raise ConfigError(f"{path} has no {key!r}")
    return value

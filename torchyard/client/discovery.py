"""Finds the server and its token for the client and the command line."""

from collections.abc import Iterator
import contextlib
from dataclasses import dataclass, replace
import os
from pathlib import Path
from urllib.parse import urlsplit

from torchyard.client.localserver import read_server
from torchyard.client.logins import Login, login_file, read_logins
from torchyard.contract.errors import ConfigError, NotAuthorized, ServerUnreachable
from torchyard.host.datadir import SERVER_FILE, own_data_dir


@dataclass(frozen=True)
class Server:
    """A server's address, its token, and the advice to print if it does not answer."""

    url: str
    token: str
    advice: str
    certificate: str | None = None
    """The only one that it may have, as PEM; None: one that an authority has given to its host."""


def discover(
    url: str | None = None,
    token: str | None = None,
    *,
    data_dir: Path = Path(".torchyard"),
    certificate: str | None = None,
) -> Server:
    """Returns the server that the arguments name, else TORCHYARD_URL and TORCHYARD_TOKEN, else the user's login (the
    one that TORCHYARD_SERVER names, or the default), else the service that runs on `data_dir`, else the user's own on
    this machine. A token is only sent to the server that it was given with. `certificate`: the only one that the server
    may have, as PEM, in place of what is known of it.

    Raises ServerUnreachable if none of them names a server, NotAuthorized if no token is known, and ConfigError if the
    address, the name or a file is not valid.
    """
    own_url, own_token = os.environ.get("TORCHYARD_URL", "").rstrip("/"), os.environ.get("TORCHYARD_TOKEN", "")
    url = (url or "").rstrip("/") or own_url
    if not token and url and own_url in {"", url}:
        token = own_token
    if url:
        check_url(url)
    if url and token:
        advice = "is its address right, and does it run?"
        return _checked(Server(url, token, advice, certificate or _known_certificate(url, data_dir)))
    found = next((server for server in _from_files(url, data_dir) if url in {"", server.url}), None)
    if found is None:
        raise _unknown(url, data_dir)
    if own_token and not (url or token) and own_token != found.token:
        raise ConfigError(
            f"TORCHYARD_TOKEN is set without TORCHYARD_URL, and may not be for {found.url}: set both, or unset it"
        )
    return _checked(replace(found, token=token or found.token, certificate=certificate or found.certificate))


def is_any_known(*, data_dir: Path = Path(".torchyard")) -> bool:
    """Returns whether the environment, a login or this machine names a server. Raises ConfigError."""
    if os.environ.get("TORCHYARD_URL") or os.environ.get("TORCHYARD_TOKEN"):
        return True
    try:
        return next(_from_files("", data_dir), None) is not None
    except ServerUnreachable:  # one was started here with `torchyard up`, and does not run
        return True


def check_url(url: str) -> None:
    """Raises ConfigError if this is not the address of a server."""
    try:
        address = urlsplit(url)
        valid = address.scheme in {"http", "https"} and bool(address.hostname) and address.port != 0
    except ValueError:  # an incomplete IPv6 address, or a port above 65535
        valid = False
    if not valid:
        raise ConfigError(f"{url!r} is not a server's address: write http://HOST:PORT")


def _checked(server: Server) -> Server:
    check_url(server.url)
    if not (server.token.isascii() and server.token.isprintable()):
        raise NotAuthorized(f"the token for {server.url} is not valid: it has characters that are not printable ASCII")
    return server


def _from_files(url: str, data_dir: Path) -> Iterator[Server]:
    advice = f"is the server of your login ({login_file()}) down?"
    yield from (Server(login.url, login.token, advice, login.certificate) for login in _logins(url))
    try:
        local = read_server(data_dir)
    except (ConfigError, ServerUnreachable):
        if url:  # a file that does not count has no token for it
            return
        raise
    if local is not None:
        again = f"`torchyard up --detach --data-dir {data_dir}`"
        advice = f"it is the address in {data_dir / SERVER_FILE}; start it again with {again}"
        yield Server(local.url, local.token, advice, local.certificate)
    with contextlib.suppress(ServerUnreachable):  # a file that an earlier service has left
        if (own := read_server(own_data_dir())) is not None:
            advice = "it is your own on this machine: start it again with `torchyard up --detach`"
            yield Server(own.url, own.token, advice, own.certificate)


def _known_certificate(url: str, data_dir: Path) -> str | None:
    """Returns the certificate that a login or a service of this machine has for the address, whatever its token."""
    if not url.startswith("https:"):
        return None
    try:
        return next((server.certificate for server in _from_files(url, data_dir) if server.url == url), None)
    except ConfigError:  # a file that does not count names none
        return None


def _logins(url: str) -> list[Login]:
    """Returns the login in use; with a URL, all others after it."""
    logins = read_logins()
    used = [logins.get(logins.in_use)] if logins.in_use is not None else []
    return [*used, *logins.servers.values()] if url else used


def _unknown(url: str, data_dir: Path) -> ServerUnreachable | NotAuthorized:
    if url:
        return NotAuthorized(f"no token is known for {url}: run `torchyard login {url}`, or set TORCHYARD_TOKEN")
    return ServerUnreachable(
        f"no server is known: start one with `torchyard up --detach` (there is no {data_dir / SERVER_FILE}), log in"
        " to one with `torchyard login URL`, or set TORCHYARD_URL and TORCHYARD_TOKEN"
    )

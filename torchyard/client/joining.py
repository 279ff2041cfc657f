"""Redeems a code, by which a machine becomes a worker, or a user logs in. It is sent to its own service alone."""

from dataclasses import dataclass
import re
import secrets

import httpx2

from torchyard.client.discovery import Server
from torchyard.client.responses import parse, problem
from torchyard.client.transport import http_options, unreachable
from torchyard.contract.errors import ConfigError
from torchyard.contract.team.codes import CodeKind, JoinCode
from torchyard.contract.team.views import JoinedView
from torchyard.contract.wire.version import own_version
from torchyard.host import trust

_ADDRESS = re.compile(r"https://([A-Za-z0-9][A-Za-z0-9.-]{0,252}|\[[0-9A-Fa-f:.]{2,45}\])(:[0-9]{1,5})?")
_TRIES = 3
_COMMANDS = {"worker": "torchyard join URL --code CODE", "user": "torchyard login URL --code CODE"}


@dataclass(frozen=True)
class Joined:
    """Who joined, and the only certificate that the service may have, as PEM; None: one of an authority."""

    view: JoinedView
    certificate: str | None


def address_of(text: str) -> str:
    """Returns the address of a service, which a shell and a terminal take as it is. Raises ConfigError."""
    address = text.rstrip("/")
    if _ADDRESS.fullmatch(address) is None:
        raise ConfigError(
            f"{text[:200]!r} is not an address by which a machine can join: write https://HOST:PORT. A service that"
            " speaks HTTP alone is started with `torchyard up --tls`, or is behind a proxy that speaks HTTPS"
        )
    return address


def new_key() -> str:
    """Returns a key of this machine, by which it may send a code again."""
    return secrets.token_urlsafe(32)


def redeem(url: str, code: JoinCode, *, kind: CodeKind, key: str | None = None) -> Joined:
    """Sends the code to the service, once its certificate is the one of the code. `kind`: what is wanted.

    It is sent again where the connection ends before the answer, always with the same key. `key`: by which it was sent
    before; None: a new one. Raises ConfigError if the certificate is another one, and nothing is sent then;
    ServerUnreachable, NotAuthorized for a code that is not valid, and Conflict if the versions do not work together.
    """
    if code.kind != kind:
        raise ConfigError(f"this is a code for a {code.kind}, to be used as: {_COMMANDS[code.kind]}")
    url = address_of(url)
    certificate = None if code.fingerprint is None else certificate_of(url, code.fingerprint)
    server = Server(url, "", "is its address right, and does it run?", certificate)
    sent = {"code": code.secret, "version": own_version(), "key": key or new_key()}
    response = _sent(server, sent)
    if not response.is_success:
        raise problem(response)
    return Joined(parse(response, JoinedView), certificate)


def _sent(server: Server, sent: dict[str, str]) -> httpx2.Response:
    """Returns the answer. Raises ServerUnreachable."""
    options = http_options(server) | {"headers": {"User-Agent": "torchyard"}}
    with httpx2.Client(**options) as http:
        for left in reversed(range(_TRIES)):
            try:
                return http.post("/v1/join", json=sent)
            except httpx2.TransportError as error:
                if not left or isinstance(error, (httpx2.ConnectError, httpx2.ConnectTimeout)):
                    raise unreachable(server, error) from error
    raise AssertionError


def certificate_of(url: str, fingerprint: str) -> str:
    """Returns the certificate of the service, as PEM. Raises ConfigError if it has another fingerprint."""
    certificate = trust.fetch_certificate(url)
    found = trust.fingerprint(certificate)
    if found != fingerprint:
        raise ConfigError(
            f"{url} is not the service of this code: its certificate has the fingerprint "
            f"{trust.shown(found)}, the code {trust.shown(fingerprint)}. Nothing was sent. Either the "
            "code belongs to another service, the certificate was replaced, or somebody intercepts "
            "the connection"
        )
    return certificate

"""Protects browsers: headers on every answer, and a check of the `Host` header."""

from functools import cache
from ipaddress import ip_address
import re
import socket

from starlette.types import Scope

from api.settings import Settings
from torchyard.contract.errors import HostNotAllowed, MalformedHttp
from torchyard.contract.wire.version import HEADER, own_version

Header = tuple[bytes, bytes]
SECURITY_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"cache-control", b"no-store"),
)
_HOST = re.compile(r"(?:\[([0-9a-fA-F:.]{2,45})\]|([A-Za-z0-9._-]{1,255}))(?::[0-9]{0,5})?")


def with_common_headers(own: list[Header]) -> list[Header]:
    """Returns the headers with SECURITY_HEADERS and the service's version. One that a route sets itself is kept."""
    present = {name.lower() for name, _ in own}
    return own + [header for header in _common() if header[0] not in present]


class AllowedHosts:
    """Refuses requests whose `Host` is not a name of this service.

    A web page can make its own name resolve to this machine (DNS rebinding) and so send requests from a user's browser.
    It cannot do that with an IP address, so addresses are always allowed.
    """

    def __init__(self, settings: Settings) -> None:
        names = {"localhost", socket.gethostname().lower(), settings.host.lower(), *settings.host_names}
        self._any = "*" in names
        self._names = frozenset(names)
        self._suffixes = tuple(name[1:] for name in names if name.startswith("*."))

    def check(self, scope: Scope) -> None:
        """Raises HostNotAllowed and MalformedHttp."""
        hosts = [value for name, value in scope["headers"] if name == b"host"]
        match = _HOST.fullmatch(hosts[0].decode("latin-1")) if len(hosts) == 1 else None
        if match is None:
            raise MalformedHttp("send exactly one `Host` header, with a name or an address (RFC 9112, 3.2)")
        if not (self._any or match[1] is not None or self._is_allowed(match[2].lower().removesuffix("."))):
            raise HostNotAllowed(
                f"{match[2]!r} is not a name of this service: its operator can add it to TORCHYARD_ALLOWED_HOSTS"
            )

    def _is_allowed(self, name: str) -> bool:
        return name in self._names or name.endswith(self._suffixes) or _is_address(name)


@cache
def _common() -> tuple[Header, ...]:
    return (*SECURITY_HEADERS, (HEADER.lower().encode(), own_version().encode()))


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True

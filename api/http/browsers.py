"""Protects browsers: headers on every answer, and a check of the `Host` header."""

from ipaddress import ip_address
import re
import socket

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.http import problems
from api.settings import Settings
from torchyard.contract.errors import HostNotAllowed, MalformedHttp, TorchyardError
from torchyard.contract.version import HEADER, own_version

SECURITY_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"cache-control", b"no-store"),
)
_HOST = re.compile(r"(?:\[([0-9a-fA-F:.]{2,45})\]|([A-Za-z0-9._-]{1,255}))(?::[0-9]{0,5})?")


class CommonHeaders:
    """Adds SECURITY_HEADERS and the service's version to every answer. A header that a route sets itself is kept."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self._headers = (*SECURITY_HEADERS, (HEADER.lower().encode(), own_version().encode()))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = list(message["headers"])
                present = {name.lower() for name, _ in own}
                message["headers"] = own + [header for header in self._headers if header[0] not in present]
            await send(message)

        await self.app(scope, receive, send_with_headers)


class AllowedHosts:
    """Refuses requests whose `Host` is not a name of this service.

    A web page can make its own name resolve to this machine (DNS rebinding) and so send requests from a user's browser.
    It cannot do that with an IP address, so addresses are always allowed.
    """

    def __init__(self, app: ASGIApp, *, settings: Settings) -> None:
        self.app = app
        names = {"localhost", socket.gethostname().lower(), settings.host.lower(), *settings.host_names}
        self._any = "*" in names
        self._names = frozenset(names)
        self._suffixes = tuple(name[1:] for name in names if name.startswith("*."))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        error = self._error(scope) if scope["type"] == "http" else None
        if error is None:
            await self.app(scope, receive, send)
        else:
            await problems.answer(Request(scope), error)(scope, receive, send)

    def _error(self, scope: Scope) -> TorchyardError | None:
        hosts = [value for name, value in scope["headers"] if name == b"host"]
        match = _HOST.fullmatch(hosts[0].decode("latin-1")) if len(hosts) == 1 else None
        if match is None:
            return MalformedHttp("send exactly one `Host` header, with a name or an address (RFC 9112, 3.2)")
        if self._any or match[1] is not None or self._is_allowed(match[2].lower().removesuffix(".")):
            return None
        return HostNotAllowed(
            f"{match[2]!r} is not a name of this service: its operator can add it to TORCHYARD_ALLOWED_HOSTS"
        )

    def _is_allowed(self, name: str) -> bool:
        return name in self._names or name.endswith(self._suffixes) or _is_address(name)


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True

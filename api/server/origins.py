"""Which host names are those of origins, and at which address a browser finds one."""

from collections.abc import Iterable
import re
from urllib.parse import urlsplit

from starlette.types import Scope

from api.server.address import is_https
from api.settings import Settings
from torchyard.host.listening import is_loopback

OPEN = "/.torchyard/open"
"""The path at which a ticket becomes a cookie."""
_HOST = re.compile(r"([a-z0-9._-]{1,255})(?::[0-9]{0,5})?")
_LOCAL = ".localhost"
"""Browsers resolve all names below it to their own machine (RFC 6761, 6.3)."""


class OriginNames:
    """The names below the operator's wildcard, and those below `localhost`. None of them is the service's."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._wildcard = urlsplit(settings.job_origins.replace("*.", "", 1)) if settings.job_origins else None
        suffix = "" if self._wildcard is None else f".{self._wildcard.hostname}"
        self._suffixes = tuple(filter(None, (suffix, _LOCAL)))
        self.has_loopback = False
        """Whether no other program can answer at this port on another address of loopback, which a browser may try."""

    def name_in(self, headers: Iterable[tuple[bytes, bytes]]) -> str | None:
        """Returns the name of the origin in the `Host` header, if the host is one, whether it is known or not."""
        hosts = [value for name, value in headers if name == b"host"]
        match = _HOST.fullmatch(hosts[0].decode("latin-1").lower()) if len(hosts) == 1 else None
        host = "" if match is None else match[1].removesuffix(".")
        return next((host.removesuffix(suffix) for suffix in self._suffixes if host.endswith(suffix)), None)

    def address_of(self, name: str, scope: Scope) -> str | None:
        """Returns the address of an origin for a browser that has sent this request; None: there can be none."""
        if self._wildcard is not None:
            return f"{self._wildcard.scheme}://{name}.{self._wildcard.netloc}"
        host = next((value.decode("latin-1") for key, value in scope["headers"] if key == b"host"), "")
        own = urlsplit(f"//{host}")
        # A browser that takes the service's own certificate for one name takes it for no other.
        if not self.has_loopback or not is_loopback(own.hostname or "") or is_https(scope, self._settings):
            return None
        return f"http://{name}{_LOCAL}" + ("" if own.port is None else f":{own.port}")

    def is_secure(self, scope: Scope) -> bool:
        """Returns whether the browser uses HTTPS for the origin that it has asked."""
        return is_https(scope, self._settings) or (self._wildcard is not None and self._wildcard.scheme == "https")

"""What of a request's headers goes to a job, and what of an answer's to the browser."""

from collections.abc import Iterable
import re
from urllib.parse import urlsplit

Header = tuple[bytes, bytes]

_HOP_BY_HOP = frozenset({
    *(b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization", b"proxy-connection"),
    *(b"te", b"trailer", b"transfer-encoding", b"upgrade"),
})  # fmt: skip
"""Headers of one connection (RFC 9110, 7.6.1)."""
_OURS = frozenset({b"host", b"origin", b"referer", b"authorization", b"cookie", b"forwarded", b"expect"})
_OF_PROXIES = (b"x-forwarded-", b"x-real-ip", b"via")
_OUR_COOKIES = re.compile(rb"(__Host-|__Secure-)?torchyard[-_]", re.IGNORECASE)
_OWN_ADDRESS = re.compile(rb"http://(?:127\.0\.0\.1|localhost):([0-9]{1,5})(?=/|$)")
_DOMAIN = re.compile(rb";\s*domain=[^;]*", re.IGNORECASE)
_OF_ORIGIN = frozenset({b"alt-svc", b"strict-transport-security", b"public-key-pins"})
"""What a job may not say for the host name, which leads to the service."""


def to_job(headers: Iterable[Header], *, port: int, own_host: bytes) -> list[Header]:
    """Returns the headers for the job, as if its page had been opened on its own machine.

    Without the service's cookies, `Authorization`, and what proxies add. `own_host`: the `Host` of the request.
    """
    there = f"127.0.0.1:{port}".encode()
    sent: list[Header] = [(b"host", there)]
    all_headers = [*headers]
    hop = _HOP_BY_HOP | _named(all_headers)
    for name, value in all_headers:
        if name == b"origin":
            is_own = urlsplit(value.decode("latin-1")).netloc.lower().encode("latin-1") == own_host.lower()
            sent.append((name, b"http://" + there if is_own else value))
        elif name == b"cookie":
            if kept := _kept_cookies(value):
                sent.append((name, kept))
        elif name not in hop and name not in _OURS and not name.startswith(_OF_PROXIES):
            sent.append((name, value))
    return sent


def to_browser(headers: Iterable[Header], *, port: int) -> list[Header]:
    """Returns the headers for the browser: a job sets no cookie of the service, and none for other host names."""
    all_headers = [(name.lower(), value) for name, value in headers]
    hop = _HOP_BY_HOP | _named(all_headers) | _OF_ORIGIN
    sent: list[Header] = []
    for name, value in all_headers:
        if name == b"set-cookie":
            if not _OUR_COOKIES.match(value.strip()):
                sent.append((name, _DOMAIN.sub(b"", value)))
        elif name == b"location":
            sent.append((name, _at_origin(value, port)))
        elif name not in hop:
            sent.append((name, value))
    return sent


def _at_origin(location: bytes, port: int) -> bytes:
    """Returns an address of the job's server as one at this origin, and any other as it is."""
    found = _OWN_ADDRESS.match(location)
    return location if found is None or int(found[1]) != port else location[found.end() :] or b"/"


def _named(headers: Iterable[Header]) -> frozenset[bytes]:
    """Returns the headers that `Connection` names: they are of that connection, too."""
    named = b",".join(value for name, value in headers if name == b"connection")
    return frozenset(name.strip().lower() for name in named.split(b","))


def _kept_cookies(value: bytes) -> bytes:
    pairs = (pair.strip() for pair in value.split(b";"))
    return b"; ".join(pair for pair in pairs if pair and not _OUR_COOKIES.match(pair))

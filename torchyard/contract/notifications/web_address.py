"""The addresses that notifications are sent to, in the one form that every program reads alike."""

from dataclasses import dataclass
import ipaddress
import re

LONGEST = 2048
"""Characters of an address, at most."""

_PORTS = {"http": 80, "https": 443}
_ADDRESS = re.compile(
    r"(?P<scheme>https?)://(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::(?P<port>[0-9]{1,5}))?"
    r"(?P<target>(?:/[^\x00-\x20\x7f-\U0010ffff\"<>\\^`{|}#]*)?)"
)
_LABEL = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?")
_NUMBER = re.compile(r"[0-9]+|0[xX][0-9A-Fa-f]*")


@dataclass(frozen=True)
class WebAddress:
    """An address of HTTP or HTTPS."""

    secure: bool
    host: str
    """A name in lower case, or an IP address without brackets."""
    port: int
    target: str
    """Path and query: `/hook?key=1`."""

    @property
    def authority(self) -> str:
        """Host and port as the `Host` of a request has them."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS["https" if self.secure else "http"] else f"{host}:{self.port}"


def parse(address: str) -> WebAddress:
    """Returns the parts of `https://HOST[:PORT][/PATH][?QUERY]`. Raises ValueError, which says what to change.

    What programs read in different ways is refused: user names, backslashes, percent signs and letters beyond ASCII in
    a host, and IP addresses in any but the usual form.
    """
    if len(address) > LONGEST:
        raise ValueError(f"an address has at most {LONGEST} characters")
    authority = address.partition("://")[2].partition("/")[0]
    if "@" in authority:
        raise ValueError("an address with a user name or password is not possible: put a key into the path")
    if not authority.isascii():
        raise ValueError("write a host with letters beyond ASCII in its xn-- form")
    found = _ADDRESS.fullmatch(address)
    if found is None:
        raise ValueError("write an address as https://HOST/PATH, without spaces, quotes or a fragment")
    scheme, port = found["scheme"], int(found["port"] or _PORTS[found["scheme"]])
    if not 1 <= port <= 65535:
        raise ValueError("a port is a number from 1 to 65535")
    target = found["target"] or "/"
    return WebAddress(secure=scheme == "https", host=_host(found["host"]), port=port, target=target)


def _host(written: str) -> str:
    if written.startswith("["):
        try:
            return str(ipaddress.IPv6Address(written[1:-1]))
        except ValueError:
            raise ValueError(f"{written} is not an IPv6 address") from None
    host = written.lower().removesuffix(".")
    labels = host.split(".")
    if _NUMBER.fullmatch(labels[-1]):
        try:
            return str(ipaddress.IPv4Address(host))
        except ValueError:
            raise ValueError(f"{written} is not an IPv4 address: write four numbers from 0 to 255") from None
    if len(host) > 253 or not all(map(_LABEL.fullmatch, labels)):
        raise ValueError(f"{written[:253]} is not a name of a host")
    return host

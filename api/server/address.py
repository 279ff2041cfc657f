"""The address of the client of a request. A proxy's header counts only if the operator has named the proxy."""

from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import Scope

from api.settings import Settings
from torchyard.host.listening import is_loopback

Address = IPv4Address | IPv6Address

_LOCAL = "local"
"""The address of a peer that has none, as on a Unix socket."""
_OF_PROXIES = ("forwarded", "x-forwarded-", "x-real-ip", "via")
"""Prefixes of the names of headers that proxies add."""
_HOST_BITS = 64
"""Bits of an IPv6 address that its host may choose."""


def client_address(scope: Scope, settings: Settings) -> str:
    """Returns the peer's address; behind trusted proxies, the last address in `X-Forwarded-For` that is not theirs.

    Returns the peer's if the header is absent or has something else than an address there.
    """
    peer = peer_address(scope["client"])
    if not is_trusted(peer, settings):
        return peer
    forwarded = ",".join(Headers(scope=scope).getlist("x-forwarded-for"))
    for text in reversed(forwarded.split(",")):
        address = _parsed(text.strip())
        if address is None:
            return peer
        if not is_trusted(str(address), settings):
            return str(address)
    return peer


def peer_address(client: tuple[str, int] | None) -> str:
    """Returns the address of a connection's other end in one form, or `local` if it has none."""
    if client is None:
        return _LOCAL
    address = _parsed(client[0])
    return client[0] if address is None else str(address)


def is_trusted(address: str, settings: Settings) -> bool:
    """Returns whether the address is that of a proxy in `TORCHYARD_TRUSTED_PROXIES`."""
    parsed = _parsed(address)
    return parsed is not None and any(parsed in network for network in settings.proxy_networks)


def is_https(scope: Scope, settings: Settings) -> bool:
    """Returns whether the client uses HTTPS, with this server or with a trusted proxy."""
    forwarded = Headers(scope=scope).get("x-forwarded-proto", "").rpartition(",")[2].strip()
    return scope["scheme"] == "https" or (forwarded == "https" and is_trusted(peer_address(scope["client"]), settings))


def is_local(scope: Scope, settings: Settings) -> bool:
    """Returns whether the client is a program on this machine that connects directly, and not through a proxy."""
    peer, headers = peer_address(scope["client"]), Headers(scope=scope)
    if not is_loopback(peer) or is_trusted(peer, settings):
        return False
    # A proxy on this machine that adds no header of its own passes on the name by which its clients call it.
    return not any(name.startswith(_OF_PROXIES) for name in headers) and is_loopback(_name(headers.get("host", "")))


def host_of(address: str) -> str:
    """Returns the key of limits by address: the address or, as an IPv6 host has many, its network."""
    parsed = _parsed(address)
    if isinstance(parsed, IPv6Address):
        return str(ip_network((parsed, _HOST_BITS), strict=False))
    return address


def _name(host: str) -> str:
    """Returns the name or the address in a `Host` header, without the port."""
    return urlsplit(f"//{host}").hostname or ""


@lru_cache(maxsize=1024)
def _parsed(text: str) -> Address | None:
    try:
        address = ip_address(text)
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address

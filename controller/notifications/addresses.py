"""Which addresses notifications may go to: public ones, and those that the operator lists.

What a user enters makes this program connect from inside the operator's network: to the metadata of a cloud, or to what
listens on loopback without a password. So each address that a name has is checked, and the connection goes to that
address, however the name is resolved a moment later.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
import ipaddress
import logging

from controller.notifications.failure import NotDelivered
from controller.notifications.resolving import resolved
from torchyard.contract.errors import ConfigError
from torchyard.contract.notifications.web_address import WebAddress

Resolve = Callable[[str, float], Sequence[str]]
"""Returns the IP addresses of a name, within so many seconds. Raises OSError if it has none, or takes longer."""

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_Network = ipaddress.IPv4Network | ipaddress.IPv6Network
_PORTS = (80, 443)
_PUBLIC_6 = ipaddress.ip_network("2000::/3")
"""Outside are loopback, link-local, multicast, unique local (fd00:…), and forms of IPv4 (::ffff:…, 64:ff9b:…)."""
_NOT_PUBLIC = [
    ipaddress.ip_network(text)
    for text in (
        *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12"),
        *("192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24"),
        *("203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4"),
        "168.63.129.16/32",  # what a machine in Azure asks for its own settings
        "2001::/23",  # Teredo, and other protocols of the IETF
        "2001:db8::/32",
        "2002::/16",  # 6to4
        "3fff::/20",
    )
]
"""The registries of IANA for special addresses (RFC 6890), in the network of public IPv6 addresses too."""


@dataclass(frozen=True)
class Allowed:
    """What the operator lists beside public addresses: names and networks, each with its port."""

    names: frozenset[tuple[str, int]] = frozenset()
    networks: tuple[tuple[_Network, int], ...] = ()

    @classmethod
    def parse(cls, setting: str) -> "Allowed":
        """Reads `chat.internal:8065, 10.1.0.0/16:443, [fd00::/8]:443`. Raises ConfigError, which names the entry."""
        names, networks = set[tuple[str, int]](), list[tuple[_Network, int]]()
        for entry in filter(None, map(str.strip, setting.split(","))):
            network, _, port = entry.rpartition(":")
            if not network or not port.isdecimal() or not 1 <= int(port) <= 65535:
                raise ConfigError(f"TORCHYARD_NOTIFY_ALLOW: {entry}: write a host or network, and its port: HOST:443")
            try:
                networks.append((ipaddress.ip_network(network.removeprefix("[").removesuffix("]")), int(port)))
            except ValueError:
                if "/" in network or "[" in network:
                    raise ConfigError(f"TORCHYARD_NOTIFY_ALLOW: {network} is not a network") from None
                names.add((network.lower().removesuffix("."), int(port)))
        return cls(frozenset(names), tuple(networks))

    def has_port(self, port: int) -> bool:
        """Returns whether anything is listed with this port."""
        return any(port == listed for _, listed in (*self.names, *self.networks))

    def has_name(self, to: WebAddress) -> bool:
        """Returns whether the host is listed by its name, whatever its addresses are."""
        return (to.host, to.port) in self.names

    def has_address(self, address: _Address, port: int) -> bool:
        """Returns whether the address is in a listed network."""
        return any(port == listed and address in network for network, listed in self.networks)


def checked(to: WebAddress, allowed: Allowed, *, timeout_s: float, resolve: Resolve = resolved) -> list[str]:
    """Returns the IP addresses of the host, if a notification may go to each of them. Raises NotDelivered.

    All that can be wrong with a name has one message, and tried again alike: a user could learn else which names the
    operator's network has. The log says it.
    """
    if to.port not in _PORTS and not allowed.has_port(to.port):
        raise NotDelivered(f"port {to.port} is not allowed: 80 and 443 are, and what the operator lists", final=True)
    try:
        addresses = list(dict.fromkeys(resolve(to.host, timeout_s)))
    except OSError as error:
        raise _refused(to, str(error)) from None
    if addresses and allowed.has_name(to):
        return addresses
    wrong = [text for text in addresses if not _may_reach(text, to.port, allowed)]
    if addresses == wrong == [to.host]:
        raise NotDelivered(f"{to.host} at port {to.port} is neither public nor listed by the operator", final=True)
    if wrong or not addresses:
        raise _refused(to, f"not public, nor listed: {', '.join(wrong)}" if wrong else "has no address")
    return addresses


def is_public(address: _Address) -> bool:
    """Returns whether the address is one of the internet's, of one host."""
    if isinstance(address, ipaddress.IPv6Address) and (address not in _PUBLIC_6 or _is_isatap(address)):
        return False
    return not any(address.version == network.version and address in network for network in _NOT_PUBLIC)


def _is_isatap(address: ipaddress.IPv6Address) -> bool:
    """Returns whether it ends in `0:5efe:a.b.c.d` or `200:5efe:a.b.c.d`: a router may send it to that IPv4 address."""
    return int(address) >> 32 & 0xFFFFFFFF in (0x00005EFE, 0x02005EFE)


def _may_reach(text: str, port: int, allowed: Allowed) -> bool:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return False
    return allowed.has_address(address, port) or (port in _PORTS and is_public(address))


def _refused(to: WebAddress, why: str) -> NotDelivered:
    logging.warning("sends no notifications to %s, port %d: %s", to.host, to.port, why)
    return NotDelivered(f"{to.host} has no address that notifications may go to: a public or a listed one")

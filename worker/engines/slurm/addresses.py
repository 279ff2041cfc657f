"""The network addresses of this host by which other nodes may reach it."""

import fcntl
import socket
import struct

from torchyard.contract.errors import ConfigError

_SIOCGIFADDR = 0x8915
_REQUEST = struct.Struct("16s16x8x")
_ADDRESS = slice(20, 24)
LOOPBACK = "127.0.0.1"


def candidates(interface: str) -> list[str]:
    """Returns the addresses to try: that of the interface, or all, the one that the host's own name has in front.

    Raises ConfigError if the interface has none.
    """
    by_interface = _by_interface()
    if interface:
        if interface not in by_interface:
            raise ConfigError(f"TORCHYARD_INTERFACE: {socket.gethostname()} has no address at {interface}")
        return [by_interface[interface]]
    addresses = [address for address in by_interface.values() if not address.startswith("127.")]
    named = _of_own_name()
    return sorted(addresses, key=lambda address: address not in named) or [LOOPBACK]


def of_node(interface: str) -> tuple[str, str]:
    """Returns the interface and the address by which other nodes reach this one. Raises ConfigError.

    `interface`: the one that the operator has set, or nothing.
    """
    address = candidates(interface)[0]
    return interface_of(address), address


def interface_of(address: str) -> str:
    """Returns the interface with this address. Raises ConfigError if there is none."""
    for name, own in _by_interface().items():
        if own == address:
            return name
    raise ConfigError(f"no network interface of {socket.gethostname()} has the address {address} as its first one")


def _by_interface() -> dict[str, str]:
    """Returns the first IPv4 address of each interface that has one."""
    addresses: dict[str, str] = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        for _, name in socket.if_nameindex():
            try:
                answer = fcntl.ioctl(asked.fileno(), _SIOCGIFADDR, _REQUEST.pack(name.encode()[:15]))
            except OSError:  # it has no address
                continue
            addresses[name] = socket.inet_ntoa(answer[_ADDRESS])
    return addresses


def _of_own_name() -> set[str]:
    try:
        return {str(item[4][0]) for item in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)}
    except OSError:
        return set()

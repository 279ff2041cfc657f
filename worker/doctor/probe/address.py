"""The address at which other nodes reach this one."""

import socket

import psutil

from torchyard.contract.errors import ConfigError

_SET = "set TORCHYARD_INTERFACE to the network interface between the nodes, such as eth0"


def own_address(interface: str) -> str:
    """Returns the address of the interface, or of the node's own name if that is empty. Raises ConfigError."""
    found = psutil.net_if_addrs()
    if interface:
        for item in found.get(interface, ()):
            if item.family is socket.AF_INET:
                return item.address
        raise ConfigError(f"there is no interface {interface} with an IPv4 address; there are {', '.join(found)}")
    try:
        address = socket.gethostbyname(socket.gethostname())
    except OSError as error:
        raise ConfigError(f"its name {socket.gethostname()} has no address ({error}): {_SET}") from None
    if address.startswith("127."):
        raise ConfigError(f"its name {socket.gethostname()} has the address {address}, which others cannot use: {_SET}")
    return address

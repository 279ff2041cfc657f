"""Keeps other programs from the service's port on loopback: a browser that opens `x.localhost` may try each address."""

from collections.abc import Iterable
from contextlib import suppress
import errno
import socket

_ADDRESSES = ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1"))
_ABSENT = {errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL}
"""Of a machine without that address."""


def hold(listening: Iterable[socket.socket]) -> list[socket.socket] | None:
    """Returns sockets that hold the port at the addresses of loopback at which the service does not listen. Who
    connects there is refused. None: another program has one of them.
    """
    names = [each.getsockname() for each in listening]
    held: list[socket.socket] = []
    for family, address in _ADDRESSES:
        everywhere = "0.0.0.0" if family is socket.AF_INET else "::"  # noqa: S104 - only compared
        if not names or any(host in {address, everywhere} for host, *_ in names):
            continue
        try:
            held.append(_bound(family, address, names[0][1]))
        except OSError as error:
            if error.errno not in _ABSENT:
                for each in held:
                    each.close()
                return None
    return held


def _bound(family: int, address: str, port: int) -> socket.socket:
    found = socket.socket(family, socket.SOCK_STREAM)
    try:
        if family is socket.AF_INET6:
            with suppress(OSError):
                found.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        found.bind((address, port))
    except OSError:
        found.close()
        raise
    return found

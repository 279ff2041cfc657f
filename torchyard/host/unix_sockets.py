"""Named sockets of this host: their paths may be longer than the 107 bytes of an address. See unix(7)."""

from collections.abc import Generator
from contextlib import contextmanager
import os
from pathlib import Path
import socket
import struct

_PEER = struct.Struct("3i")
"""`struct ucred`: pid, uid and gid."""


@contextmanager
def address_of(path: Path) -> Generator[str]:
    """Yields an address of the socket at `path`, by the descriptor of its folder. Raises OSError."""
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


def listen(path: Path, *, kind: socket.SocketKind = socket.SOCK_STREAM, mode: int = 0o600) -> socket.socket:
    """Returns a socket that does not block, and listens at `path`. Raises OSError."""
    listener = socket.socket(socket.AF_UNIX, kind)
    try:
        listener.setblocking(False)
        with address_of(path) as address:
            listener.bind(address)
        path.chmod(mode)
        listener.listen(128)
    except BaseException:
        listener.close()
        raise
    return listener


def peer_of(connection: socket.socket) -> tuple[int, int]:
    """Returns pid and user of the process at the other end, when it connected or began to listen. Raises OSError."""
    pid, uid, _ = _PEER.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
    return pid, uid

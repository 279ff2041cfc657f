"""The way of secrets from the worker to the ranks: never in a file, an argument or a launcher's environment.

The worker hands them to the supervisor in an anonymous file in memory. The supervisor sets them in the ranks that it
forks. Ranks that torchrun starts ask it for them, through a socket.
"""

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
import json
import os
from pathlib import Path
import socket
import struct

from worker.engines.local import process

_PEER = struct.Struct("3i")
"""`struct ucred` of unix(7): pid, uid and gid."""
_SEND_S = 5.0


@contextmanager
def sealed(values: Mapping[str, str]) -> Generator[int]:
    """Yields a descriptor from which `read` returns the values."""
    descriptor = os.memfd_create("torchyard-secrets", os.MFD_CLOEXEC)
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(json.dumps(dict(values)).encode())
        yield descriptor
    finally:
        os.close(descriptor)


def read(descriptor: int) -> dict[str, str]:
    """Returns the values that `sealed` has written, and closes the descriptor."""
    with open(descriptor, "rb") as file:
        file.seek(0)
        return json.loads(file.read())


def is_below(pid: int, uid: int) -> bool:
    """Returns whether a process is a descendant of this one, of the same user."""
    return uid == os.getuid() and pid in {item.pid for item in process.descendants(os.getpid())}


class SecretServer:
    """Gives the values to processes that connect to a socket. Raises OSError if it cannot be made.

    `is_peer`: whether the process with this pid and uid may have them.
    """

    def __init__(
        self, path: Path, values: Mapping[str, str], *, is_peer: Callable[[int, int], bool] = is_below
    ) -> None:
        self.path = path
        self._is_peer = is_peer
        self._content = json.dumps(dict(values)).encode()
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            # By its folder's descriptor, because a socket's path has at most 107 bytes.
            self._listener.bind(f"/proc/self/fd/{folder}/{path.name}")
        finally:
            os.close(folder)
        self._listener.listen(128)

    def fileno(self) -> int:
        return self._listener.fileno()

    def answer(self) -> None:
        """Answers one process that has connected. One that may not have the values gets nothing."""
        connection, _ = self._listener.accept()
        with connection:
            pid, uid, _ = _PEER.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
            if not self._is_peer(pid, uid):
                return
            connection.settimeout(_SEND_S)
            try:
                connection.sendall(self._content)
            except OSError:  # the rank has ended, or does not read: its own failure says more
                return

    def close(self) -> None:
        self._listener.close()
        self.path.unlink(missing_ok=True)

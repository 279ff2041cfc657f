"""The way of secrets from the worker to the ranks: never in a file, an argument or a launcher's environment.

The worker hands them to the supervisor in an anonymous file in memory. The supervisor sets them in the ranks that it
forks. Ranks that torchrun starts ask it for them, through a socket.
"""

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
import errno
import json
import os
from pathlib import Path
import socket
import time

from torchyard.host import unix_sockets
from worker.host import process

_PEER_PIDFD = 77
"""`SO_PEERPIDFD` of Linux 6.5 and later."""
_SEND_S = 5.0
"""How long a peer may take to read the values."""
_AT_ONCE = 8
"""Connections that are answered in one turn, at most."""
_MOST_WAITING = 64
"""Peers that may have values to read, at most."""


@dataclass
class _Answer:
    """What a peer has still to read."""

    connection: socket.socket
    rest: memoryview
    deadline: float

    def send(self) -> bool:
        """Sends what the peer takes now. Returns whether it may take more later."""
        try:
            self.rest = self.rest[self.connection.send(self.rest) :]
        except BlockingIOError:
            pass
        except OSError:  # the rank has ended: its own failure says more
            return False
        return bool(self.rest) and time.monotonic() < self.deadline


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
        self._waiting: list[_Answer] = []
        self._listener = unix_sockets.listen(path)

    def fileno(self) -> int:
        return self._listener.fileno()

    def answer(self) -> None:
        """Answers some processes that have connected, and never waits. One that may not have the values gets nothing.

        A large answer needs several calls.
        """
        self._waiting = [answer for answer in self._waiting if self._goes_on(answer)]
        for _ in range(min(_AT_ONCE, _MOST_WAITING - len(self._waiting))):
            try:
                connection, _ = self._listener.accept()
            except OSError:  # nobody is left, or has ended meanwhile, or there is no descriptor for them now
                return
            connection.setblocking(False)
            answer = _Answer(connection, memoryview(self._content), time.monotonic() + _SEND_S)
            if not self._may_have(connection):
                connection.close()
            elif self._goes_on(answer):
                self._waiting.append(answer)

    def close(self) -> None:
        for answer in self._waiting:
            answer.connection.close()
        self._listener.close()
        self.path.unlink(missing_ok=True)

    def _may_have(self, connection: socket.socket) -> bool:
        pid, uid = unix_sockets.peer_of(connection)
        try:
            pidfd = connection.getsockopt(socket.SOL_SOCKET, _PEER_PIDFD)
        except OSError as error:
            return error.errno == errno.ENOPROTOOPT and self._is_peer(pid, uid)  # an older kernel
        try:
            # It still runs after the check, so the pid was not another process's.
            return self._is_peer(pid, uid) and not process.readable([pidfd])
        finally:
            os.close(pidfd)

    def _goes_on(self, answer: _Answer) -> bool:
        if answer.send():
            return True
        answer.connection.close()
        return False

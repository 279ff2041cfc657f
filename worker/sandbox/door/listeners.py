"""Connects to what a process of the attempt listens on, and to nothing else of the host."""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
import os
from pathlib import Path
import re
import socket
import stat
import sys

from torchyard.contract.attempts.rundir import Env
from torchyard.contract.reach.orders import Target
from torchyard.host import unix_sockets
from worker.host import process

_CONNECT_S = 2.0
_LISTENS = "0A"
_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_SOCKET = re.compile(r"socket:\[(\d+)\]")


class Refused(Exception):
    """There is no such listener of the attempt. The text says why."""


@dataclass(frozen=True)
class Neighbours:
    """The processes of the attempt that this process is in, and their folders. `first`: the pid above all of them."""

    first: int

    def connect(self, target: Target) -> socket.socket:
        """Returns a connection to a port or a socket. Raises Refused."""
        try:
            if target.path is not None:
                return self._connect_path(Path(target.path))
            if target.port is not None:
                return self._connect_port(target.port)
        except OSError as error:
            raise Refused(error.strerror or str(error)) from None
        raise Refused("neither a port nor a path was named")

    def _connect_port(self, port: int) -> socket.socket:
        for host, places in _reached_by(port):
            before = _first_listeners(port, places)
            if not before or not self._hold(before):
                continue
            connection = socket.create_connection((host, port), timeout=_CONNECT_S)
            # What took its place meanwhile has another inode.
            if _first_listeners(port, places) == before and self._hold(before):
                return connection
            connection.close()
        raise Refused(f"no process of this job listens on port {port} of its loopback")

    def _connect_path(self, path: Path) -> socket.socket:
        real = Path(os.path.realpath(path))
        if not any(real.is_relative_to(folder) for folder in _folders()):
            raise Refused(f"{path} is in none of the job's folders")
        opened = os.open(real, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            if not stat.S_ISSOCK(os.fstat(opened).st_mode):
                raise Refused(f"{path} is not a socket")
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                connection.settimeout(_CONNECT_S)
                connection.connect(f"/proc/self/fd/{opened}")
                listener, _ = unix_sockets.peer_of(connection)
            except BaseException:
                connection.close()
                raise
        finally:
            os.close(opened)
        if listener not in self._pids():
            connection.close()
            raise Refused(f"no process of this job listens at {path}")
        return connection

    def _pids(self) -> set[int]:
        return {self.first, *(item.pid for item in process.descendants(self.first))}

    def _hold(self, inodes: set[int]) -> bool:
        """Returns whether processes of the attempt have all of these sockets open."""
        missing = set(inodes)
        for pid in self._pids():
            missing -= _sockets_of(pid)
            if not missing:
                return True
        return False


def _reached_by(port: int) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yields the hosts of loopback, each with the addresses of listeners that it leads to, the nearest first.

    They are as `/proc/net` has them: 32 bits at a time, as numbers of this machine.
    """
    any_6 = "0" * 32
    yield "127.0.0.1", (_hex("127.0.0.1"), _hex("::ffff:127.0.0.1"), "0" * 8, any_6)
    yield "::1", (_hex("::1"), any_6)


def _hex(address: str) -> str:
    packed = socket.inet_pton(socket.AF_INET6 if ":" in address else socket.AF_INET, address)
    words = (packed[at : at + 4] for at in range(0, len(packed), 4))
    return "".join(f"{int.from_bytes(word, sys.byteorder):08X}" for word in words)


def _first_listeners(port: int, places: Iterable[str]) -> set[int]:
    """Returns the sockets that listen at the first of these addresses where any does: several may share it."""
    found: dict[str, set[int]] = {}
    for table in _TABLES:
        with suppress(FileNotFoundError), table.open() as lines:  # a kernel without IPv6
            for line in lines:
                fields = line.split()
                address, _, number = fields[1].partition(":")
                if fields[3] == _LISTENS and int(number, 16) == port:
                    found.setdefault(address, set()).add(int(fields[9]))
    return next((found[place] for place in places if place in found), set())


def _sockets_of(pid: int) -> set[int]:
    found: set[int] = set()
    with suppress(OSError), os.scandir(f"/proc/{pid}/fd") as entries:  # it has ended, or may not be inspected
        for entry in entries:
            with suppress(OSError):
                match = _SOCKET.fullmatch(os.readlink(entry.path))  # noqa: PTH115 of hundreds
                if match is not None:
                    found.add(int(match[1]))
    return found


def _folders() -> list[str]:
    named = (os.environ.get(Env.RUN_DIR), os.environ.get("TMPDIR"), os.getcwd())  # noqa: PTH109
    return [os.path.realpath(folder) for folder in named if folder]

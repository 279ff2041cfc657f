"""The network of a lab: a bridge on this host, to which each machine is linked."""

from contextlib import suppress
import os
from pathlib import Path
import re
import socket
import subprocess

_INTERFACES = Path("/sys/class/net")
_NAME = re.compile(r"tylab(\d+)$")


class Network:
    """A bridge with addresses 10.213.K.0/24 and fd00:213:K::/64, where K is free.

    The name `tylabK` can be made only once.
    """

    def __init__(self) -> None:
        _remove_left()
        for self._number in range(1, 255):
            if _ip("link", "add", self._bridge, "type", "bridge", check=False):
                break
        else:
            raise RuntimeError("no network 10.213.K.0/24 is free")
        self._held = _hold(self._bridge)
        try:
            _ip("link", "set", self._bridge, "alias", str(os.getpid()))
            self._remove_links()
            _ip("addr", "add", f"{self.address(0)}/24", "dev", self._bridge)
            _ip("link", "set", self._bridge, "up")
            _ip("addr", "add", f"{self.address6(0)}/64", "dev", self._bridge, "nodad")
        except BaseException:
            self.remove()
            raise

    def address(self, machine: int) -> str:
        """The address of a machine, counted from 1, or of this host, 0."""
        return f"10.213.{self._number}.{machine + 10 if machine else 1}"

    def address6(self, machine: int) -> str:
        """Its address of IPv6."""
        return f"fd00:213:{self._number:x}::{machine + 10 if machine else 1:x}"

    def link(self, machine: int, *, pid: int) -> None:
        """Gives the machine whose first process is `pid` an interface `eth0`."""
        peer = ("peer", "name", "eth0", "netns", str(pid))
        _ip("link", "add", self._interface(machine), "master", self._bridge, "type", "veth", *peer)
        _ip("link", "set", self._interface(machine), "up")
        inside = ("nsenter", f"--target={pid}", "--net", "ip")
        command(*inside, "addr", "add", f"{self.address(machine)}/24", "dev", "eth0")
        command(*inside, "link", "set", "eth0", "up")
        command(*inside, "addr", "add", f"{self.address6(machine)}/64", "dev", "eth0", "nodad")
        command(*inside, "route", "add", "default", "via", self.address(0))

    def unlink(self, machine: int) -> None:
        """Removes the interface: after a machine's end it would stay as long as a socket waits for an answer."""
        _ip("link", "del", self._interface(machine), check=False)

    def cut(self, machine: int) -> None:
        _ip("link", "set", self._interface(machine), "down")

    def mend(self, machine: int) -> None:
        _ip("link", "set", self._interface(machine), "up")

    def shape(self, machine: int, *, mbit: float, queue_bytes: int = 1 << 20) -> None:
        """Limits what is sent to a machine."""
        command(*limit(self._interface(machine), mbit=mbit, queue_bytes=queue_bytes))

    def remove(self) -> None:
        self._remove_links()
        _ip("link", "del", self._bridge, check=False)
        if self._held is not None:
            self._held.close()

    def _remove_links(self) -> None:
        for folder in _INTERFACES.glob(f"{self._bridge}n*"):
            _ip("link", "del", folder.name, check=False)

    @property
    def _bridge(self) -> str:
        return f"tylab{self._number}"

    def _interface(self, machine: int) -> str:
        return f"tylab{self._number}n{machine}"


def limit(interface: str, *, mbit: float, queue_bytes: int) -> list[str]:
    """Returns the command that limits what an interface sends. What does not fit into the queue is dropped."""
    burst = min(queue_bytes, 1 << 18)
    size = ["rate", f"{mbit}mbit", "burst", str(burst), "limit", str(queue_bytes)]
    return ["tc", "qdisc", "replace", "dev", interface, "root", "tbf", *size]


def _remove_left() -> None:
    """Removes the bridges of labs whose process was killed."""
    for folder in _INTERFACES.iterdir():
        with suppress(OSError, ValueError):
            if not _NAME.match(folder.name) or Path(f"/proc/{int((folder / 'ifalias').read_text())}").exists():
                continue
            if (held := _hold(folder.name)) is not None:
                _ip("link", "del", folder.name, check=False)
                held.close()


def _hold(bridge: str) -> socket.socket | None:
    """Takes the name of a socket that all processes of this network see, also those that see other pids.

    It is free again when it is closed or its process has ended. Returns None while another one has it.
    """
    held = socket.socket(socket.AF_UNIX)
    try:
        held.bind(f"\0{bridge}")
    except OSError:
        held.close()
        return None
    return held


def _ip(*arguments: str, check: bool = True) -> bool:
    return command("ip", *arguments, check=check)


def command(*argv: str, check: bool = True) -> bool:
    """Runs a command, and returns whether it succeeded. Raises RuntimeError if it must and does not."""
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if check and done.returncode:
        raise RuntimeError(f"{' '.join(argv)}: {done.stderr.strip()}")
    return not done.returncode

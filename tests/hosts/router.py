"""A router of a lab. The service sees its address, and not that of the box behind it."""

from pathlib import Path

from tests.hosts.machine import Machine
from tests.hosts.network import Network, command

_NUMBERS = (100, 101)
"""By which the network gives it addresses."""
_INSIDE, _BOX = "192.168.7.1", "192.168.7.2"
_RULES = """
add table ip nat
add chain ip nat leaving { type nat hook postrouting priority srcnat ; }
add rule ip nat leaving oifname eth0 masquerade
"""


class Router:
    """Translates the addresses of one box, whose connections it remembers."""

    def __init__(self, folder: Path, network: Network) -> None:
        self._network = network
        self._machine = Machine("router", hosts=Path("/etc/hosts"))
        self._network.link(_NUMBERS[0], pid=self._machine.pid)
        self._machine.run("bash", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")
        self._machine.run("nft", _RULES)

    def link(self, *, pid: int) -> None:
        """Gives the box whose first process is `pid` an interface `eth0`."""
        peer = ("peer", "name", "eth0", "netns", str(pid))
        own = ("nsenter", f"--target={self._machine.pid}", "--net", "ip")  # it sees the pids of this host
        command(*own, "link", "add", "eth1", "type", "veth", *peer)
        self._machine.run("ip", "addr", "add", f"{_INSIDE}/24", "dev", "eth1")
        self._machine.run("ip", "link", "set", "eth1", "up")
        inside = ("nsenter", f"--target={pid}", "--net", "ip")
        command(*inside, "addr", "add", f"{_BOX}/24", "dev", "eth0")
        command(*inside, "link", "set", "eth0", "up")
        command(*inside, "route", "add", "default", "via", _INSIDE)

    def move(self) -> None:
        """Gets another address, at which it forgets all connections, and tells nobody."""
        old, new = (f"{self._network.address(number)}/24" for number in _NUMBERS)
        self._machine.run("ip", "addr", "del", old, "dev", "eth0")
        self._machine.run("ip", "addr", "add", new, "dev", "eth0")

    def end(self) -> None:
        self._machine.end()
        self._network.unlink(_NUMBERS[0])

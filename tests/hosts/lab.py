"""Boxes on this machine that share nothing with a service but a link: namespaces, and folders of their own. Needs root.

The service runs on this host, at `lab.address`, and keeps its files below `lab.hidden`, where a box sees nothing.
"""

from collections.abc import Sequence
from contextlib import ExitStack
import os
from pathlib import Path
import shutil
import signal
import subprocess
import sys
from typing import Self

import psutil
import pytest

from tests.hosts.machine import Machine, wait_until
from tests.hosts.network import Network, limit
from tests.hosts.router import Router

_PROGRAMS = ("ip", "tc", "unshare", "nsenter", "mount")
LINK_MBIT = 1000


class Lab:
    """Boxes b1, b2 and so on. All that it has started is gone when its block ends, or its process is killed."""

    def __init__(self, folder: Path) -> None:
        """`folder`: a new one, whose path is short: it is part of those of sockets."""
        self.folder = folder
        self.hidden = folder / "service"
        self._boxes: dict[int, Box] = {}
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        """Skips the test where this cannot work."""
        if (reason := missing()) is not None:
            pytest.skip(reason)
        self.hidden.mkdir(parents=True)
        self._network = Network()
        self._stack.callback(self._network.remove)
        self._stack.callback(lambda: [box.kill() for box in self._boxes.values()])
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def address(self) -> str:
        """That of the service's host, as boxes see it."""
        return self._network.address(0)

    @property
    def address6(self) -> str:
        """Its address of IPv6."""
        return self._network.address6(0)

    def box(self, number: int = 1, *, router: Router | None = None) -> "Box":
        """Returns a box, which is started where it does not run. `router`: what it is behind, if it is new."""
        if number not in self._boxes:
            folder = self.folder / f"b{number}"
            self._boxes[number] = Box(folder, number, self._network, hidden=self.hidden, router=router)
        self._boxes[number].boot()
        return self._boxes[number]

    def said(self) -> str:
        """Returns the ends of what the boxes that run have written."""
        return "\n".join(box.said() for box in self._boxes.values() if box.is_running)

    def router(self) -> Router:
        """Starts a router. Skips the test where the program is missing that sets its rules."""
        if not shutil.which("nft"):
            pytest.skip("a lab of boxes needs this program for a router: nft")
        made = Router(self.folder, self._network)
        self._stack.callback(made.end)
        return made


class Box:
    """A machine with a data directory, a home and a link of its own."""

    def __init__(self, folder: Path, number: int, network: Network, *, hidden: Path, router: Router | None) -> None:
        self.name = f"b{number}"
        self.folder = folder
        self.data = folder / "data"
        self.log = folder / "join.log"
        self._number = number
        self._network = network
        self._hidden = hidden
        self._router = router
        self._machine: Machine | None = None
        for each in (self._home, self._temporary, folder / "etc"):
            each.mkdir(parents=True)
        (folder / "etc" / "hosts").write_text("127.0.0.1 localhost\n")

    def boot(self) -> None:
        """Starts the machine, if it does not run: what it had on its disk is there."""
        if self._machine is None:
            self._machine = Machine(self.name, hosts=self.folder / "etc" / "hosts")
            self._machine.run("mount", "-t", "tmpfs", "tmpfs", str(self._hidden))
            if self._router is not None:
                self._router.link(pid=self._machine.pid)
                return
            self._network.link(self._number, pid=self._machine.pid)
            self.shape()

    def join(self, *arguments: str, slots: int = 2) -> subprocess.Popen[bytes]:
        """Starts `torchyard join`, with what the service has printed for the box, or with nothing where it has joined.

        It runs until the box is killed. Returns the process that waits for its end.
        """
        options = (f"--data-dir={self.data}", f"--cpu-slots={slots}")
        return self.start([sys.executable, "-P", "-m", "torchyard", "join", *arguments, *options], log=self.log)

    def run(self, *argv: str) -> str:
        """Runs a command in the box, and returns what it prints."""
        assert self._machine is not None
        return self._machine.run(*argv)

    def start(self, argv: Sequence[str], *, log: Path) -> subprocess.Popen[bytes]:
        assert self._machine is not None
        return self._machine.start(argv, environment=self._environment(), log=log)

    @property
    def is_running(self) -> bool:
        return self._machine is not None and self._machine.is_running

    def crash(self) -> None:
        """Kills the first process, at which the kernel kills all others. `kill` removes what is left."""
        if self._machine is not None and self._machine.is_running:
            os.kill(self._machine.pid, signal.SIGKILL)

    def kill(self) -> None:
        """Ends the box as a power cut does: no process of it runs on, and its link is gone."""
        if self._machine is not None:
            self._machine.end()
            self._network.unlink(self._number)
            self._machine = None

    def cut(self) -> None:
        """Takes the link down. What the box runs goes on."""
        self._network.cut(self._number)

    def mend(self) -> None:
        self._network.mend(self._number)

    def shape(self, mbit: float = LINK_MBIT, *, queue_bytes: int = 1 << 20) -> None:
        """Limits the link, in each direction. What does not fit into the queue is lost."""
        assert self._machine is not None
        self._network.shape(self._number, mbit=mbit, queue_bytes=queue_bytes)
        self._machine.run(*limit("eth0", mbit=mbit, queue_bytes=queue_bytes))

    def dropped(self) -> int:
        """Returns how many packets the box could not send."""
        said = self.run("tc", "-s", "qdisc", "show", "dev", "eth0")
        return int(said.partition("dropped ")[2].partition(",")[0])

    def processes(self, *words: str) -> list[psutil.Process]:
        """Returns the box's processes whose command lines have these words."""
        assert self._machine is not None
        found: list[psutil.Process] = []
        for process in self._machine.processes():
            try:
                line = process.cmdline()
            except psutil.NoSuchProcess:
                continue
            if all(word in line for word in words):
                found.append(process)
        return found

    def worker(self) -> psutil.Process:
        """Returns the daemon, once it runs."""
        wait_until(lambda: bool(self.processes("-m", "worker")), f"the worker of {self.name} runs\n{self.said()}")
        return min(self.processes("-m", "worker"), key=lambda process: process.create_time())

    def signal(self, number: signal.Signals) -> None:
        """Sends a signal to each process of the box, as a machine that sleeps stops all of them at once."""
        assert self._machine is not None
        self._machine.signal(number)

    def said(self) -> str:
        """Returns the ends of what its programs have written."""
        logs = [self.log, *sorted(self.data.glob("logs/*.log"))]
        return "\n".join(f"--- {path}\n{path.read_text(errors='replace')[-4000:]}" for path in logs if path.exists())

    @property
    def _home(self) -> Path:
        return self.folder / "home"

    @property
    def _temporary(self) -> Path:
        return self.folder / "tmp"

    def _environment(self) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self._home),
            "TMPDIR": str(self._temporary),
            "LANG": "C.UTF-8",
            "OMP_NUM_THREADS": "1",
        }


def missing() -> str | None:
    """Returns what a lab needs and this machine does not have; None if there is nothing."""
    if os.geteuid():
        return "a lab of boxes needs root, for namespaces and a bridge"
    if absent := [name for name in _PROGRAMS if not shutil.which(name)]:
        return f"a lab of boxes needs these programs: {' '.join(absent)}"
    if not _has_namespaces():
        return "a lab of boxes needs namespaces, which this machine does not give"
    return None


def _has_namespaces() -> bool:
    own = ("unshare", "--net", "--pid", "--mount", "--fork", "--mount-proc")
    argv = [*own, "ip", "link", "add", "tylab", "type", "bridge"]
    return subprocess.run(argv, capture_output=True, check=False).returncode == 0

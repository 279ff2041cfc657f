"""A real Slurm of one to four nodes on this machine, whose nodes are namespaces. Needs root and Debian's packages.

with SlurmLab(folder, nodes=2) as lab:
    lab.run("srun", "hostname")
"""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
import os
from pathlib import Path
import secrets
import shutil
import socket
import subprocess
from typing import Self

import psutil
import pytest

from tests.hosts.machine import Machine, wait_until
from tests.hosts.network import Network
from tests.servers import free_port
from tests.slurm.cgroups import Cgroups
from tests.slurm.configuration import PARTITIONS, Partition, Place, Profile, Settings, write

_PACKAGES = {
    "slurmctld": "slurmctld",
    "slurmd": "slurmd",
    "sbatch": "slurm-client",
    "munged": "munge",
    "ip": "iproute2",
    "unshare": "util-linux",
    "nsenter": "util-linux",
}
_CONTROLLER = 0


class SlurmLab:
    """A cluster of nodes n1 to nN, each with an address of its own on `eth0` and this machine's files.

    slurmctld runs on this host, at `address`. All that the lab has started is gone when its block ends.
    """

    def __init__(
        self,
        folder: Path,
        *,
        nodes: int = 3,
        profile: Profile = "linuxproc",
        partitions: Sequence[Partition] = PARTITIONS,
        min_job_age_s: int = 300,
        gpus: int = 2,
    ):
        """Prepares a lab in a folder, which may be new. Its path should be short: it is part of that of a socket."""
        self.folder = folder
        self.nodes = [f"n{number}" for number in range(1, nodes + 1)]
        self._settings = Settings(profile=profile, partitions=partitions, min_job_age_s=min_job_age_s, gpus=gpus)
        self._machines: dict[int, Machine] = {}
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        """Starts everything, and returns when each node is idle. Skips the test where that cannot work."""
        reason = missing()
        if reason is not None:
            pytest.skip(reason)
        try:
            self._begin()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def address(self) -> str:
        """This host's address as the nodes see it."""
        return self._network.address(0)

    def environment(self) -> dict[str, str]:
        """What a process needs in its environment so that sbatch, squeue and the others reach this lab."""
        return {"SLURM_CONF": str(self._configuration)}

    def run(
        self, *argv: str, environment: Mapping[str, str] | None = None, check: bool = True, timeout_s: float = 120
    ) -> subprocess.CompletedProcess[str]:
        """Runs a client command on this host. Raises CalledProcessError if it fails and `check` is set."""
        done = subprocess.run(
            argv,
            env={**_plain_environment(), **self.environment(), **(environment or {})},
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout_s,
        )
        if check and done.returncode:
            raise subprocess.CalledProcessError(done.returncode, argv, done.stdout, done.stderr)
        return done

    def start_controller(self) -> None:
        """Starts slurmctld, and returns when it answers."""
        argv = ["slurmctld", "-D", "-f", str(self._configuration)]
        self._machines[_CONTROLLER].start(argv, environment=self._daemon_environment(), log=self._log("controller"))
        wait_until(lambda: self.run("scontrol", "ping", check=False).returncode == 0, "slurmctld answers")

    def kill_controller(self, *, lose_state: bool = False) -> None:
        """Kills slurmctld with SIGKILL, so that it saves nothing. `lose_state` removes what it had saved before too."""
        self._machines[_CONTROLLER].kill("slurmctld")
        if lose_state:
            shutil.rmtree(self.folder / "state")
            (self.folder / "state").mkdir()

    def start_node(self, number: int) -> None:
        """Starts slurmd on a node, and its machine if that is dead. `wait_for_node` waits until it is of use."""
        if number not in self._machines:
            cgroups = self._cgroups.of(f"n{number}") if self._cgroups else None
            machine = Machine(f"n{number}", hosts=self.folder / "hosts", cgroups=cgroups)
            self._machines[number] = machine
            self._network.link(number, pid=machine.pid)
        argv = ["slurmd", "-D", "-N", f"n{number}", "-f", str(self._configuration)]
        self._machines[number].start(argv, environment=self._daemon_environment(), log=self._log(f"n{number}"))

    def kill_node(self, number: int, *, whole: bool = True) -> None:
        """Kills a node's machine with all its processes, or with `whole=False` only its slurmd."""
        if not whole:
            self._machines[number].kill("slurmd")
            return
        self._machines.pop(number).end()
        self._network.unlink(number)

    def wait_for_node(self, number: int, *states: str) -> None:
        """Waits until Slurm shows a node in one of these states, such as `idle` or `down`."""
        wait_until(lambda: self.node_state(number) in states, f"n{number} is {' or '.join(states)}")

    def node_state(self, number: int) -> str:
        """Returns a node's state as sinfo shows it: `idle`, `mixed`, `allocated`, `down*`."""
        return self.run("sinfo", "--noheader", "--Node", "-n", f"n{number}", "-p", "main", "-o", "%T").stdout.strip()

    def cut_link(self, number: int) -> None:
        """Cuts a node from the network; its processes go on."""
        self._network.cut(number)

    def mend_link(self, number: int) -> None:
        self._network.mend(number)

    def processes(self, number: int) -> list[psutil.Process]:
        """Returns a node's processes, slurmd and slurmstepd among them, with their pids on this host.

        None of a dead node.
        """
        machine = self._machines.get(number)
        return [] if machine is None else machine.processes()

    def commands(self, number: int) -> dict[int, str]:
        """Returns the command lines of a node's processes, by pid."""
        found: dict[int, str] = {}
        for process in self.processes(number):
            with suppress(psutil.NoSuchProcess):
                found[process.pid] = " ".join(process.cmdline())
        return found

    def on_node(self, number: int, *argv: str) -> str:
        """Runs a command on a node without Slurm, and returns what it prints."""
        return self._machines[number].run(*argv)

    def _begin(self) -> None:
        self._make_folders()
        self._network = Network()
        self._stack.callback(self._network.remove)
        self._cgroups = Cgroups() if self._settings.profile == "cgroup" else None
        if self._cgroups:
            self._stack.callback(self._cgroups.remove)
        self._stack.callback(self._end_machines)
        self._configure()
        self._machines[_CONTROLLER] = Machine(hosts=self.folder / "hosts")
        self._start_munge()
        self.start_controller()
        for number, _ in enumerate(self.nodes, 1):
            self.start_node(number)
        for number, _ in enumerate(self.nodes, 1):
            self.wait_for_node(number, "idle")

    def _make_folders(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.folder.chmod(0o755)
        for name in ("munge", "state", "spool", "log", "devices"):
            self._stack.callback(shutil.rmtree, self.folder / name, ignore_errors=True)
            (self.folder / name).mkdir(mode=0o755)
        for index in range(self._settings.gpus):
            os.mknod(self.folder / f"devices/gpu{index}", 0o20666, os.makedev(240, index))

    def _start_munge(self) -> None:
        folder = self.folder / "munge"
        key = folder / "key"
        key.touch(mode=0o400)
        key.write_bytes(secrets.token_bytes(128))
        self._munge_socket.parent.mkdir(mode=0o755)
        self._stack.callback(shutil.rmtree, self._munge_socket.parent, ignore_errors=True)
        options = [f"--{name}={folder / name}" for name in ("pid-file", "log-file", "seed-file")]
        options += [f"--key-file={key}", f"--socket={self._munge_socket}"]
        argv = ["munged", "--foreground", "--force", *options]
        self._machines[_CONTROLLER].start(argv, environment=_plain_environment(), log=self._log("munged"))
        answers = ["munge", "--no-input", f"--socket={self._munge_socket}"]
        wait_until(lambda: self._succeeds(answers), "munged answers")

    @property
    def _munge_socket(self) -> Path:
        """In /run, as that of a real cluster: jobs of the service see nothing there."""
        return Path("/run") / self.folder.name / "munge.socket"

    def _configure(self) -> None:
        addresses = {name: self._network.address(number) for number, name in enumerate(self.nodes, 1)}
        host = socket.gethostname().partition(".")[0]
        names = {"localhost": "127.0.0.1", host: self.address, **addresses}
        (self.folder / "hosts").write_text("".join(f"{address} {name}\n" for name, address in names.items()))
        place = Place(self.folder, self._munge_socket, host, self.address, free_port(), addresses)
        self._configuration = write(self._settings, place)

    def _end_machines(self) -> None:
        for machine in reversed(self._machines.values()):
            machine.end()

    def _daemon_environment(self) -> dict[str, str]:
        return {**_plain_environment(), **self.environment()}

    def _log(self, name: str) -> Path:
        return self.folder / "log" / f"{name}.out"

    def _succeeds(self, argv: Sequence[str]) -> bool:
        return subprocess.run(argv, capture_output=True, check=False).returncode == 0


def missing() -> str | None:
    """Returns what a lab needs and this machine does not have; None if there is nothing. Installs nothing."""
    if os.geteuid():
        return "a Slurm lab needs root, for namespaces and a bridge"
    packages = sorted({package for program, package in _PACKAGES.items() if not shutil.which(program)})
    return f"a Slurm lab needs these packages: apt-get install {' '.join(packages)}" if packages else None


def _plain_environment() -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": "/root", "LANG": "C.UTF-8"}

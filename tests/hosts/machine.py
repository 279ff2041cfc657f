"""Machines of a lab: process trees that end as one, with namespaces of their own."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
import os
from pathlib import Path
import signal
import subprocess
import time

import psutil

_START_S = 30
_INIT = r"""
set -e
mount --bind "$HOSTS" /etc/hosts
if [ -n "$NAME" ]; then
    hostname "$NAME"
    ip link set lo up
    mount --bind /dev/null /etc/resolv.conf  # whoever asks for a name that is not in /etc/hosts is refused at once
    boot=$(mktemp)
    cat /proc/sys/kernel/random/uuid > "$boot"
    mount --bind "$boot" /proc/sys/kernel/random/boot_id  # each start is another one
    rm "$boot"
fi
if [ -n "$CGROUPS" ]; then
    mount -t tmpfs -o mode=755 tmpfs /sys/fs/cgroup
    for controller in $CGROUPS; do
        mkdir "/sys/fs/cgroup/$controller"
        mount -t cgroup -o "$controller" cgroup "/sys/fs/cgroup/$controller"
    done
fi
echo ready
read -r _ || true
"""
"""The first process: it adopts and reaps, and ends, and all the others with it, when the lab closes its input."""
_ENTER_CGROUPS = r"""
for folder in $CGROUP_FOLDERS; do echo 0 > "$folder/cgroup.procs"; done
exec "$@"
"""


class Machine:
    """Processes whose first is the namespaces' init: whatever they start and wherever it hides, it ends with them.

    With a name it is a host of its own, with a network; otherwise only pids and /etc/hosts are its own.
    """

    def __init__(self, name: str = "", *, hosts: Path, cgroups: Mapping[str, Path] | None = None):
        flags = ["--pid", "--mount", "--fork", "--mount-proc"]
        flags += ["--net", "--uts", "--ipc"] if name else []
        flags += ["--cgroup"] if cgroups else []
        variables = {
            "PATH": os.environ["PATH"],
            "NAME": name,
            "HOSTS": str(hosts),
            "CGROUPS": " ".join(cgroups or ()),
            "CGROUP_FOLDERS": " ".join(str(folder) for folder in (cgroups or {}).values()),
        }
        argv = ["bash", "-c", _ENTER_CGROUPS, "bash", "unshare", *flags, "bash", "-c", _INIT]
        self._programs: list[subprocess.Popen[bytes]] = []
        self._outer = subprocess.Popen(
            argv, env=variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        )
        try:
            assert self._outer.stdout
            ready = self._outer.stdout.readline()
            assert ready == b"ready\n", f"the machine {name} does not start: {ready!r}"
            self.pid = psutil.Process(self._outer.pid).children()[0].pid
        except BaseException:
            self.end()
            raise
        self._namespace = Path(f"/proc/{self.pid}/ns/pid").stat().st_ino
        self._flags = [f"--target={self.pid}", "--pid", "--mount"]
        self._flags += ["--net", "--uts", "--ipc"] if name else []
        self._flags += ["--cgroup"] if cgroups else []
        self._folders = variables["CGROUP_FOLDERS"]

    @property
    def is_running(self) -> bool:
        return self._outer.poll() is None

    def start(self, argv: Sequence[str], *, environment: Mapping[str, str], log: Path) -> subprocess.Popen[bytes]:
        """Starts a program in the machine, its output appended to `log`. Returns the process that waits for its end."""
        entered = ["bash", "-c", _ENTER_CGROUPS, "bash", "nsenter", *self._flags, *argv]
        with log.open("ab") as output:
            program = subprocess.Popen(
                entered,
                env={**environment, "CGROUP_FOLDERS": self._folders},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self._programs.append(program)
        return program

    def run(self, *argv: str) -> str:
        """Runs a command in the machine and returns what it prints."""
        entered = ["nsenter", *self._flags, *argv]
        return subprocess.run(entered, check=True, stdout=subprocess.PIPE, text=True).stdout

    def processes(self) -> list[psutil.Process]:
        """Returns the machine's processes besides its first, those in pid namespaces below its own included."""
        found: list[psutil.Process] = []
        for process in psutil.process_iter():
            with suppress(OSError, psutil.Error):
                if process.pid != self.pid and self._contains(process.pid):
                    found.append(process)
        return found

    def signal(self, number: signal.Signals) -> None:
        """Sends a signal to each process besides the first."""
        for process in self.processes():
            with suppress(psutil.NoSuchProcess):
                process.send_signal(number)
        if number == signal.SIGCONT:
            for program in self._programs:
                program.send_signal(number)  # nsenter stops itself when its child is stopped

    def kill(self, name: str) -> None:
        """Kills the programs of that name, and waits until they are gone."""
        killed: list[psutil.Process] = []
        for process in self.processes():
            with suppress(psutil.NoSuchProcess):
                if process.name() == name:
                    process.send_signal(signal.SIGKILL)
                    killed.append(process)
        _, alive = psutil.wait_procs(killed, timeout=_START_S)
        assert not alive, f"{alive} do not die"

    def end(self) -> None:
        """Ends the first process, at which the kernel kills all others, and returns when none is left."""
        for stream in (self._outer.stdin, self._outer.stdout):
            if stream:
                stream.close()
        for program in self._programs:
            program.kill()  # nsenter stops itself when its child is stopped, and the namespace waits for it
        for program in (self._outer, *self._programs):
            program.wait(_START_S)

    def _contains(self, pid: int) -> bool:
        """Whether the pid namespace of `pid` is the machine's, or one below it."""
        if Path(f"/proc/{pid}/ns/pid").stat().st_ino == self._namespace:
            return True
        return self.pid in [parent.pid for parent in psutil.Process(pid).parents()]


def wait_until(condition: Callable[[], bool], what: str, *, seconds: float = 60) -> None:
    """Waits for a condition; raises TimeoutError, which says for what."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not in {seconds} s: {what}")
        time.sleep(0.05)

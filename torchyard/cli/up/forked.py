"""Starts the migration, the API, the worker and the controller as forks of one process that has imported for them."""

from collections.abc import Mapping, Sequence
import contextlib
import json
import os
from pathlib import Path
import select
import signal
import socket
import subprocess
import time

from torchyard.cli.up import programs
from torchyard.cli.up.spawning import spawn
from torchyard.host import inspection

_PR_SET_CHILD_SUBREAPER = 36
_POLL_S = 0.02
_END_S = 1.0


class Starter:
    """The process that forks. It imports while the rest of the service starts. Call `close` when all are forked."""

    def __init__(self, names: Sequence[str], *, env: Mapping[str, str], log: Path) -> None:
        """`env` must have no secret. Raises OSError."""
        pairs = {name: socket.socketpair() for name in names}
        theirs = [other.fileno() for _, other in pairs.values()]
        argv = programs.argv("store.forks", *map(str, theirs))
        with log.open("ab") as output:
            self._process = spawn(argv, env=env, stdout=output, stderr=output, keep=theirs)
        self._channels = {name: ours for name, (ours, _) in pairs.items()}
        for _, other in pairs.values():
            other.close()
        inspection.prctl(_PR_SET_CHILD_SUBREAPER, 1)

    def start(self, name: str, *, env: Mapping[str, str], log: int, keep: int) -> "Forked":
        """Has it fork the module `name`, once. Raises OSError.

        The program's output goes to `log`. It keeps the descriptor `keep`.
        """
        channel = self._channels.pop(name)
        asked = json.dumps({"module": name, "env": dict(env)}).encode()
        sent = socket.send_fds(channel, [asked], [log, keep])
        channel.sendall(asked[sent:])
        channel.shutdown(socket.SHUT_WR)
        return Forked(channel)

    def close(self) -> None:
        """Waits a moment until it ends, as it does after its last fork, and kills it otherwise."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_S)
        self._process.kill()
        self._process.wait()
        for channel in self._channels.values():
            channel.close()
        inspection.prctl(_PR_SET_CHILD_SUBREAPER, 0)


class Forked:
    """A program that was forked: the part of `subprocess.Popen` that `Child` uses."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self.pid: int | None = None
        """None until it runs."""
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Returns the exit code if the process has ended, or was never forked."""
        if self.returncode is not None:
            return self.returncode
        if self.pid is None and select.select([self._channel], [], [], 0)[0]:
            self._take_pid()
        if self.pid is not None and self.returncode is None:
            found, status = os.waitpid(self.pid, os.WNOHANG)
            self.returncode = os.waitstatus_to_exitcode(status) if found else None
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Returns the exit code. Raises subprocess.TimeoutExpired."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            if deadline is not None and time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0.0)
            time.sleep(_POLL_S)
        return code

    def send_signal(self, number: signal.Signals) -> None:
        """Sends a signal. A program that does not run yet will not: it cannot tell its pid."""
        if self.poll() is not None:
            return
        if self.pid is None:
            self._channel.close()
            self.returncode = -number
        else:
            os.kill(self.pid, number)

    def _take_pid(self) -> None:
        try:
            told = self._channel.recv(32)
        except ConnectionResetError:  # it ended before it had read the request
            told = b""
        self._channel.close()
        if told:
            self.pid = int(told)
        else:
            self.returncode = 1

"""Components of the service. Each is restarted shortly after its end, as systemd or Compose would."""

from collections.abc import Mapping, Sequence
import os
from pathlib import Path
import signal
import subprocess
import time
from typing import Protocol

from tests import forked_warm
from tests.forked import ForkedProgram
from tests.postgresql import PostgreSQLServer
from torchyard.cli.up.spawning import spawn

_PAUSE_S = 0.5


class Component(Protocol):
    """Only one thread calls `keep_alive` and `stop`, and the process ends with that thread."""

    @property
    def pid(self) -> int | None:
        """None while it does not run."""
        ...

    def keep_alive(self) -> None:
        """Starts the process if it does not run and its pause is over."""
        ...

    def send(self, number: signal.Signals, *, rest: float = _PAUSE_S) -> int | None:
        """Signals the process, which restarts `rest` seconds after its end. Returns its pid; None if none runs."""
        ...

    def stop(self) -> None:
        """Kills the process without a restart."""
        ...


class Program:
    """A program of ours, or redis-server. Its output is appended to `log`.

    `forked_in`: it is a module of ours and runs in that folder as a fork of a process that has imported it.
    """

    def __init__(
        self, argv: Sequence[str], *, env: Mapping[str, str], log: Path, forked_in: Path | None = None
    ) -> None:
        self._argv, self._env, self._log, self._forked_in = argv, env, log, forked_in
        self._process: subprocess.Popen[bytes] | ForkedProgram | None = None
        self._due = 0.0
        self._rest = _PAUSE_S

    @property
    def pid(self) -> int | None:
        process = self._process
        return process.pid if process is not None and process.returncode is None else None

    def keep_alive(self) -> None:
        if self._process is not None and self._process.poll() is None:
            return
        if self._process is not None:
            self._due, self._rest = time.monotonic() + self._rest, _PAUSE_S
            self._process = None
        if time.monotonic() >= self._due:
            self._process = self._start()

    def send(self, number: signal.Signals, *, rest: float = _PAUSE_S) -> int | None:
        self._rest = rest
        return signalled(self.pid, number)

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _start(self) -> subprocess.Popen[bytes] | ForkedProgram:
        if self._forked_in is not None:
            return ForkedProgram(
                self._argv[-1], env=self._env, cwd=self._forked_in, log=self._log, prepare=forked_warm.apply
            )
        with self._log.open("ab") as log:
            return spawn(self._argv, env=self._env, stdout=log, stderr=log)


class Database:
    """PostgreSQL."""

    def __init__(self, server: PostgreSQLServer) -> None:
        self._server = server
        self._due = 0.0

    @property
    def pid(self) -> int | None:
        return self._server.pid

    def keep_alive(self) -> None:
        if self._server.pid is not None or time.monotonic() < self._due:
            return
        try:
            self._server.start()
        except AssertionError:  # processes of the killed server still run
            self._due = time.monotonic() + _PAUSE_S

    def send(self, number: signal.Signals, *, rest: float = _PAUSE_S) -> int | None:
        self._due = time.monotonic() + rest
        return signalled(self._server.pid, number)

    def stop(self) -> None:
        self._server.stop()


def signalled(pid: int | None, number: signal.Signals) -> int | None:
    """Signals the process, if there is one. Returns its pid, None if it does not run."""
    if pid is None:
        return None
    try:
        os.kill(pid, number)
    except ProcessLookupError:  # it has just ended
        return None
    return pid

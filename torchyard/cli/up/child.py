"""A child process of `torchyard up`. It has a session of its own, and is started again when it dies."""

from collections.abc import Mapping, Sequence
import contextlib
import os
from pathlib import Path
import re
import signal
import subprocess
import time

from torchyard.cli.up.forked import Forked, Starter
from torchyard.cli.up.spawning import spawn
from torchyard.contract.attempts import last_error

_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0
_STABLE_S = 60.0
"""After so many seconds of a child's life, the pause before its next start is the shortest again."""

_TAIL = 16_384
"""Bytes of a log in which an error is looked for."""
_ERROR = re.compile(r"^\S+ \S+ (?:ERROR|CRITICAL) (.+)$", re.MULTILINE)
"""A line as our programs log it: the date, the time, the level, the message."""


class Child:
    """A program and, while it runs, its process. Its output is appended to `log`."""

    def __init__(self, name: str, argv: Sequence[str], *, env: Mapping[str, str], log: Path, keep: int) -> None:
        self.name = name
        self.log = log
        self._argv = list(argv)
        self._env = dict(env)
        self._keep = keep
        """A descriptor that the process inherits: its lock is released when the process ends."""
        self._process: subprocess.Popen[bytes] | Forked | None = None
        self._written = 0
        """Bytes of the log that are of earlier processes."""
        self._deaths = 0
        self._started = self._due = 0.0

    @property
    def pid(self) -> int | None:
        """The pid of its process. None if none runs, or it was not forked yet."""
        return self._process.pid if self._process is not None else None

    def start(self, starter: Starter | None = None) -> None:
        """Starts the program, or has the starter fork it. Raises OSError."""
        with self.log.open("ab") as log:
            self._written = log.tell()
            if starter is not None:
                self._process = starter.start(self.name, env=self._env, log=log.fileno(), keep=self._keep)
            else:
                self._process = spawn(self._argv, env=self._env, stdout=log, stderr=log, keep=(self._keep,))
        self._started = time.monotonic()

    def died(self) -> str | None:
        """Returns how the process ended, once; None if it runs."""
        if self._process is None or (code := self._process.poll()) is None:
            return None
        self._process = None
        self._deaths = 1 if time.monotonic() - self._started > _STABLE_S else self._deaths + 1
        self._due = time.monotonic() + self.pause
        return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"

    def last_error(self) -> str | None:
        """Returns the last line of the newest process's log that says what is wrong; None if there is none."""
        with self.log.open("rb") as file:
            file.seek(max(self._written, self.log.stat().st_size - _TAIL))
            text = file.read().decode(errors="replace")
        logged = [found[1] for found in _ERROR.finditer(text)]
        said = None if logged else last_error.said(text)
        return logged[-1] if logged else None if said is None else said.line

    @property
    def pause(self) -> float:
        """Seconds between the last death and the next start."""
        return min(_FIRST_PAUSE * 2 ** (self._deaths - 1), _LONGEST_PAUSE)

    @property
    def due(self) -> bool:
        """Whether the process has ended and the pause is over."""
        return self._process is None and time.monotonic() >= self._due

    def ask_to_stop(self) -> None:
        """Sends SIGTERM, and does not wait."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)

    def stop(self, number: signal.Signals, *, within: float) -> bool:
        """Sends the signal, waits up to `within` seconds, and kills what is left. Returns False if it had to kill."""
        if self._process is None or self._process.poll() is not None:
            return True
        self._process.send_signal(number)
        try:
            self._process.wait(within)
        except subprocess.TimeoutExpired:
            self.kill()
            self._process.wait()
            return False
        return True

    def kill(self) -> None:
        """Kills the process and its process group."""
        if self._process is not None and self._process.pid is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

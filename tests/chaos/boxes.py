"""Boxes of a chaos run: machines of a lab whose workers have joined the service."""

from collections.abc import Callable, Sequence
import json
import signal
import subprocess
import threading
import time

from tests.chaos.components import signalled
from tests.hosts.lab import Box
from torchyard.host.joined import JOINED_FILE

_PAUSE_S = 0.5


class BoxWorker:
    """A component whose process is the daemon of a box: `torchyard join` starts that again, and this starts `join`."""

    def __init__(self, box: Box, arguments: Sequence[str], *, slots: int) -> None:
        """`arguments`: those of `join` by which the box joins."""
        self._box, self._arguments, self._slots = box, arguments, slots
        self._lock = threading.Lock()
        """Held while the box is started, removed or broken."""
        self._join: subprocess.Popen[bytes] | None = None
        self._due = 0.0
        self._rest = _PAUSE_S

    @property
    def worker_id(self) -> str:
        return json.loads((self._box.data / JOINED_FILE).read_text())["worker_id"]

    @property
    def pid(self) -> int | None:
        return self._find("-m", "worker")

    def keep_alive(self) -> None:
        with self._lock:
            if self._join is not None and (not self._box.is_running or self._join.poll() is not None):
                self._join, self._due, self._rest = None, time.monotonic() + self._rest, _PAUSE_S
            if self._join is None and time.monotonic() >= self._due:
                if not self._box.is_running:
                    self._box.kill()
                    self._box.boot()
                first = () if (self._box.data / JOINED_FILE).exists() else self._arguments
                self._join = self._box.join(*first, slots=self._slots)

    def send(self, number: signal.Signals, *, rest: float = _PAUSE_S) -> int | None:
        """Signals the daemon. When it starts again is up to `join`."""
        return signalled(self.pid, number)

    def kill_join(self) -> int | None:
        """Kills `join`. Returns its pid, None if it does not run."""
        return signalled(self._find("-m", "torchyard", "join"), signal.SIGKILL)

    def crash(self, *, rest: float) -> bool:
        """Kills all that runs in the box, which starts again after `rest` seconds. Returns whether it ran."""
        self._rest = rest
        return self._do(self._box.crash)

    def sleep(self) -> bool:
        """Stops all that runs in the box. Returns whether it ran."""
        return self._do(lambda: self._box.signal(signal.SIGSTOP))

    def wake(self) -> bool:
        return self._do(lambda: self._box.signal(signal.SIGCONT))

    def cut(self) -> bool:
        """Takes the link down. Returns whether there was one."""
        return self._do(self._box.cut)

    def mend(self) -> bool:
        return self._do(self._box.mend)

    def forget(self, sha256: str) -> None:
        """Removes what the box has kept of a download."""
        (self._box.data / "blobs" / "cache" / sha256).unlink(missing_ok=True)

    def stop(self) -> None:
        with self._lock:
            self._box.kill()

    def _do(self, what: Callable[[], None]) -> bool:
        with self._lock:
            if not self._box.is_running:
                return False
            try:
                what()
            except RuntimeError:  # its interface has just gone
                return False
            return True

    def _find(self, *words: str) -> int | None:
        with self._lock:
            found = self._box.processes(*words) if self._box.is_running else []
            return min((process.pid for process in found), default=None)

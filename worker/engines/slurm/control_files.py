"""The coordinator's side of the shared disk, in a thread of its own: while a disk hangs, others are still served."""

import contextlib
import os
import socket
import threading
import time

from torchyard.contract.attempts.records import StopRequest
from torchyard.contract.states import EndReason
from torchyard.host.recordfiles import write_record
from torchyard.host.untrusted import read_untrusted
from worker.engines.local.supervisor.ending import log
from worker.engines.slurm.records import ClusterFiles, StacksRequest


class ControlFiles:
    """Writes the heartbeat, and reads what the daemon asks for."""

    def __init__(self, files: ClusterFiles, *, beat_s: float) -> None:
        """Raises OSError if the heartbeat cannot be written."""
        self.stop: StopRequest | None = None
        """The newest request to stop."""
        self.stacks: int | None = None
        """The newest request for stacks."""
        self._files = files
        self._beat_s = beat_s
        self._look = threading.Event()
        self._own_stop: StopRequest | None = None
        self._beat()
        self._written_at = time.monotonic()
        self._read()
        self._awake, self._wake = socket.socketpair()
        self._awake.setblocking(False)
        self._wake.setblocking(False)
        threading.Thread(target=self._run, name="control files", daemon=True).start()

    def fileno(self) -> int:
        """Becomes readable when something may have changed."""
        return self._awake.fileno()

    @property
    def silent_s(self) -> float:
        """For how long the heartbeat could not be written."""
        return time.monotonic() - self._written_at

    def look(self) -> None:
        """Has the requests read at once."""
        self._look.set()

    def request_stop(self, request: StopRequest) -> None:
        """Asks for a stop that the daemon has not asked for, and has it written for the ranks."""
        if self.stop is None:
            self.stop = self._own_stop = request
            self._look.set()

    def drain(self) -> None:
        """Takes the news from the descriptor."""
        with contextlib.suppress(BlockingIOError):
            self._awake.recv(4096)

    def _run(self) -> None:
        while True:
            self._look.wait(self._beat_s)
            self._look.clear()
            try:
                self._beat()
                self._written_at = time.monotonic()
                self._write_own_stop()
            except OSError as error:
                log(f"the shared disk: {error}")
            self._read()
            with contextlib.suppress(BlockingIOError):
                self._wake.send(b"!")

    def _beat(self) -> None:
        """Changes the time of the heartbeat, which needs no space on a full disk."""
        path = self._files.heartbeat
        try:
            os.utime(path, ns=(time.time_ns(), time.time_ns()))
        except FileNotFoundError:
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))

    def _write_own_stop(self) -> None:
        own = self._own_stop
        if own is not None and not os.path.lexists(self._files.run.stop):
            write_record(self._files.run.stop, own)

    def _read(self) -> None:
        request = read_untrusted(self._files.run.stop, StopRequest)
        if request is not None:
            self.stop = request
        elif self.stop is None and os.path.lexists(self._files.run.stop):
            self.stop = StopRequest(reason=EndReason.KILLED)
        stacks = read_untrusted(self._files.stacks, StacksRequest)
        self.stacks = self.stacks if stacks is None else stacks.number

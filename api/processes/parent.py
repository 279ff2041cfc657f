"""Serves one address by several processes: the parent opens the sockets, and starts what dies again."""

from collections.abc import Callable, Sequence
import logging
import os
import signal
import socket
import time

from torchyard.host.parent import end_with_parent

Serve = Callable[[Sequence[socket.socket]], int]
"""Serves on the sockets until SIGTERM, and returns an exit code: not 0 if that cannot be done."""

_FAILED = 1
_SIGNALS = (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT)
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.5, 30.0
_STABLE_S = 60.0
"""After so many seconds of a process's life, the pause before its next start is the shortest again."""
_STOP_S = 30.0
"""Longest time for all processes to stop. They give open requests some seconds."""

_log = logging.getLogger(__name__)


def listen(host: str, port: int) -> list[socket.socket]:
    """Returns a listening socket for each address of the host. With port 0, all have the same. Raises OSError."""
    sockets: list[socket.socket] = []
    for family, _, _, _, address in dict.fromkeys(
        socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    ):
        chosen = port or (sockets[0].getsockname()[1] if sockets else 0)
        sockets.append(socket.create_server((address[0], chosen, *address[2:]), family=family))
    return sockets


class Parent:
    """Runs `count` forked processes. It has one thread, and opens nothing but the sockets."""

    def __init__(self, count: int, serve: Serve, sockets: Sequence[socket.socket]) -> None:
        self._serve = serve
        self._sockets = sockets
        self._slots = [_Slot() for _ in range(count)]

    def run(self) -> int:
        """Serves until SIGTERM or SIGINT, and returns 0; or until a process gives up, and returns its exit code."""
        signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        code: int | None = None
        while code is None:
            for slot in self._slots:
                if slot.pid is None and slot.due <= time.monotonic():
                    slot.started(self._fork())
            received = signal.sigtimedwait(_SIGNALS, self._pause())
            code = self._look() if received is None or received.si_signo == signal.SIGCHLD else 0
        self._stop()
        return code

    def _fork(self) -> int:
        parent = os.getpid()
        pid = os.fork()
        if pid:
            return pid
        code = _FAILED
        try:
            end_with_parent(signal.SIGKILL)  # even if it is stopped: the port must be free again
            if os.getppid() == parent:
                signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
                code = self._serve(self._sockets)
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else _FAILED
        except Exception:  # noqa: BLE001 - nothing may leave this function in the child
            _log.exception("this process of the API ends")
        finally:
            logging.shutdown()
            os._exit(code)

    def _pause(self) -> float:
        """Returns the seconds until the next start, and many if all run."""
        due = [slot.due for slot in self._slots if slot.pid is None]
        return max(0.0, min(due) - time.monotonic()) if due else 3600.0

    def _look(self) -> int | None:
        """Notes which processes have ended. Returns the exit code of one that has given up: another one would, too."""
        for slot in self._slots:
            code = slot.ended()
            if code is not None and code > 0:
                return code
            if code is not None:
                how = f"was killed by {signal.Signals(-code).name}" if code else "was asked to end"
                _log.error("a process of the API %s; another one starts in %g s", how, slot.pause)
        return None

    def _stop(self) -> None:
        """Ends all processes: who connects from now on is refused, and open requests have their seconds."""
        for each in self._sockets:
            each.close()
        running = [slot for slot in self._slots if slot.pid is not None]
        for slot in running:
            slot.send(signal.SIGTERM)
        deadline = time.monotonic() + _STOP_S
        while running := [slot for slot in running if slot.ended() is None]:
            left = deadline - time.monotonic()
            received = signal.sigtimedwait(_SIGNALS, max(0.0, left))
            if received is None or received.si_signo != signal.SIGCHLD:  # it took too long, or a second signal came
                for slot in running:
                    slot.send(signal.SIGKILL)


class _Slot:
    """One of the processes, and after its end the next one."""

    def __init__(self) -> None:
        self.pid: int | None = None
        self.due = self._started = 0.0
        self._deaths = 0

    @property
    def pause(self) -> float:
        """Seconds between the last death and the next start."""
        return min(_FIRST_PAUSE_S * 2 ** (self._deaths - 1), _LONGEST_PAUSE_S)

    def started(self, pid: int) -> None:
        self.pid, self._started = pid, time.monotonic()

    def ended(self) -> int | None:
        """Returns the exit code of the process, once; less than 0 is a signal. None if it runs, or none does."""
        if self.pid is None:
            return None
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        if not pid:
            return None
        now = time.monotonic()
        self._deaths = 1 if now - self._started > _STABLE_S else self._deaths + 1
        self.pid, self.due = None, now + self.pause
        return os.waitstatus_to_exitcode(status)

    def send(self, number: signal.Signals) -> None:
        if self.pid is not None:
            os.kill(self.pid, number)

"""The worker's side of its warm process: starts it, starts it again when it ends, and asks it for supervisors."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
import logging
from pathlib import Path
import signal
import socket
import sys
import threading
import time
from typing import TypeVar

from torchyard.contract.record import Record
from torchyard.contract.records import ProcessIdentity
from torchyard.contract.views import StartsView
from worker.engines.local import orphans, process
from worker.engines.local.warm.fingerprint import fingerprint
from worker.engines.local.warm.messages import LIMIT, Forked, Ready, Request

_READY_S = 120.0
_FORK_S = 10.0
_SOON_S = 10.0
"""A warm process that ends sooner than this is started again only after a pause."""
_PAUSES_S = (0.0, 1.0, 5.0, 30.0, 60.0)

logger = logging.getLogger(__name__)

T = TypeVar("T", bound=Record)


class NotWarm(Exception):
    """There is no warm process that could start it, and none was started. Its text says why."""


class Lost(Exception):
    """The warm process ended, or did not answer, while it was asked: it may have started a supervisor."""


@dataclass(frozen=True)
class _Child:
    """A warm process."""

    identity: ProcessIdentity
    channel: socket.socket
    made_of: str
    began: datetime
    loaded: frozenset[str] | None = None
    """None until it is ready."""


class WarmProcess:
    """Keeps one warm process running between `open` and `close`. The other methods may be called from any thread."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._env = dict(env)
        self._changed = threading.Condition()
        """Guards what follows; notified with each change."""
        self._child: _Child | None = None
        self._closed = False
        self._trouble = "the warm process was not started"
        self._forks = 0
        self._asking = threading.Lock()
        self._thread = threading.Thread(target=self._keep, name="keeper of the warm process", daemon=True)

    def open(self) -> None:
        """Starts it in the background."""
        self._trouble = ""
        self._thread.start()

    def close(self) -> None:
        """Lets it end. The supervisors that it has started go on."""
        with self._changed:
            self._closed = True
            self._trouble = "the warm process is closed"
            self._changed.notify_all()
            self._let_go()
        if self._thread.is_alive():
            self._thread.join(_FORK_S)

    def modules(self, *, wait_s: float) -> frozenset[str]:
        """The top-level modules that it has imported. Waits until it is ready. Raises NotWarm."""
        deadline = time.monotonic() + wait_s
        with self._changed:
            if self._child is not None and self._child.made_of != fingerprint(self._env):
                logger.info("the warm process is replaced: its code or its packages have changed")
                self._let_go()
            while True:
                if self._child is not None and self._child.loaded is not None:
                    return self._child.loaded
                if self._trouble or not self._changed.wait(deadline - time.monotonic()):
                    raise NotWarm(self._trouble or "the warm process is not ready yet")

    def fork(self, run: Path, *, lock: int, log: int) -> ProcessIdentity:
        """Has it start the supervisor of `run`, which gets both descriptors. Raises NotWarm and Lost."""
        with self._changed:
            child = self._child
            if child is None or child.loaded is None:
                raise NotWarm(self._trouble or "the warm process is not ready yet")
        with self._asking:
            answer = _ask(child, run, lock=lock, log=log)
        if answer.process is None:
            raise NotWarm(f"the warm process cannot fork: {answer.trouble}")
        with self._changed:
            self._forks += 1
        return answer.process

    def look(self) -> StartsView:
        """How starts are now."""
        with self._changed:
            child, forks = self._child, self._forks
            if child is None or child.loaded is None:
                why = self._trouble or "the warm process is starting"
                return StartsView(mode="cold", why=why, forks=forks)
        memory = process.own_memory(child.identity)
        return StartsView(mode="warm", since=child.began, forks=forks, memory_bytes=memory)

    def _keep(self) -> None:
        quick = 0
        while not self._closed:
            began = time.monotonic()
            self._trouble = ""
            try:
                child = self._start()
            except OSError as error:
                self._trouble = f"the warm process cannot be started: {error}"
            else:
                self._wait_for_end(child)
            quick = quick + 1 if self._trouble or time.monotonic() - began < _SOON_S else 0
            with self._changed:
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._closed, _PAUSES_S[min(quick, len(_PAUSES_S) - 1)])

    def _start(self) -> _Child:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [sys.executable, "-P", "-u", "-m", "worker.engines.local.warm.process", str(theirs.fileno())]
        env = self._env | {"OPENBLAS_NUM_THREADS": "1"}  # else NumPy's starts threads when it is imported
        try:
            made_of = fingerprint(self._env)
            identity = orphans.start(command, env=env, log=None, keep=theirs.fileno())
        except OSError:
            ours.close()
            raise
        finally:
            theirs.close()
        child = _Child(identity, ours, made_of, datetime.now(UTC))
        with self._changed:
            if self._closed:
                ours.close()
            self._child = child
        return child

    def _wait_for_end(self, child: _Child) -> None:
        ready = _receive(child.channel, Ready, timeout=_READY_S)
        with self._changed:
            if ready is not None and self._child is child:
                self._child = replace(child, loaded=frozenset(ready.modules))
                self._changed.notify_all()
        if ready is None:
            process.send(child.identity, signal.SIGKILL)
        process.wait(child.identity)
        with self._changed:
            if ready is None and not self._closed and self._child is child:  # not let go meanwhile
                self._trouble = "the warm process ended before it was ready: the worker's log says why"
                logger.warning("%s", self._trouble)
            if self._child is not None and self._child.identity == child.identity:
                self._child = None
            child.channel.close()

    def _let_go(self) -> None:
        """It ends once nobody holds the other end of its socket."""
        child, self._child = self._child, None
        if child is not None:
            child.channel.shutdown(socket.SHUT_RDWR)


def _ask(child: _Child, run: Path, *, lock: int, log: int) -> Forked:
    request = Request(run=str(run)).to_json().encode()
    try:
        socket.send_fds(child.channel, [request], [lock, log])
    except OSError as error:
        raise NotWarm(f"the warm process has ended: {error}") from None
    answer = _receive(child.channel, Forked, timeout=_FORK_S)
    if answer is None:
        process.send(child.identity, signal.SIGKILL)  # an answer that comes late would be taken for the next one
        process.wait(child.identity, timeout=_FORK_S)  # until then, it may hold the lock that it was sent
        raise Lost
    return answer


def _receive(channel: socket.socket, kind: type[T], *, timeout: float) -> T | None:
    """The next message; None where none comes in time, or it is not one."""
    try:
        if not process.readable([channel.fileno()], timeout=timeout):
            return None
        message = channel.recv(LIMIT)
        return kind.from_json(message) if message else None
    except (OSError, ValueError):  # ValueError: it was closed meanwhile
        return None

"""Keeps the warm process of a worker running, and has it fork supervisors."""

from collections.abc import Mapping, Sequence
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

from torchyard.contract.attempts.records import ProcessIdentity
from torchyard.contract.cluster.devices import StartsReport
from torchyard.contract.wire.codec import Record
from worker.engines.local.warm.fingerprint import fingerprint
from worker.engines.local.warm.messages import LIMIT, ForkReply, ForkRequest, Ready
from worker.host import orphans, process

_READY_S = 120.0
FORK_S = 10.0
_EARLY_END_S = 10.0
"""A warm process that ends earlier than this is started again only after a delay."""
_RESTART_DELAYS_S = (0.0, 1.0, 5.0, 30.0, 60.0)
"""The delays by the number of early ends in a row."""
LOOK_EVERY_S = 1.0

logger = logging.getLogger(__name__)

T = TypeVar("T", bound=Record)


class WarmProcessUnavailable(Exception):
    """No warm process can fork now, and nothing was started. The message says why."""


class NoAnswer(Exception):
    """The warm process ended or did not answer after it got a request: it may have started a supervisor."""


@dataclass(frozen=True)
class _Child:
    """A warm process."""

    identity: ProcessIdentity
    channel: socket.socket
    fingerprint: str
    started_at: datetime
    loaded: frozenset[str] | None = None
    """The modules that it has imported. None until it is ready."""


class WarmProcess:
    """Keeps one warm process running between `open` and `close`. Any thread may call the other methods."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._env = dict(env)
        self._changed = threading.Condition()
        """Guards the next four attributes. Notified of each change."""
        self._child: _Child | None = None
        self._closed = False
        self._problem = "the warm process was not started"
        self._forks = 0
        self._next_look = 0.0
        self._request_lock = threading.Lock()
        self._thread = threading.Thread(target=self._keep_running, name="warm process manager", daemon=True)

    def open(self) -> None:
        """Starts the warm process in the background."""
        self._problem = ""
        self._thread.start()

    def close(self) -> None:
        """Has the warm process exit. The supervisors that it has forked go on."""
        with self._changed:
            self._closed = True
            self._problem = "the warm process is closed"
            self._changed.notify_all()
            self._release_child()
        if self._thread.is_alive():
            self._thread.join(FORK_S)

    def loaded_modules(self, *, wait_s: float) -> frozenset[str]:
        """Waits until the warm process is ready, and returns the top-level modules that it has imported.

        Raises WarmProcessUnavailable.
        """
        deadline = time.monotonic() + wait_s
        with self._changed:
            while True:
                if self._child is not None and self._is_outdated(self._child):
                    logger.info("replacing the warm process: its code or packages changed")
                    self._release_child()
                if self._child is not None and self._child.loaded is not None:
                    return self._child.loaded
                if self._problem or not self._changed.wait(deadline - time.monotonic()):
                    raise WarmProcessUnavailable(self._problem or "the warm process is not ready yet")

    def fork(self, run: Path, *, lock: int, log: int, secrets: int) -> ProcessIdentity:
        """Has the warm process fork the supervisor of `run`, which gets the descriptors.

        Raises WarmProcessUnavailable and NoAnswer.
        """
        with self._changed:
            child = self._child
            if child is None or child.loaded is None:
                raise WarmProcessUnavailable(self._problem or "the warm process is not ready yet")
        with self._request_lock:
            reply = _request_fork(child, run, descriptors=(lock, log, secrets))
        if reply.process is None:
            raise WarmProcessUnavailable(f"the warm process cannot fork: {reply.trouble}")
        with self._changed:
            self._forks += 1
        return reply.process

    def status(self) -> StartsReport:
        """Returns whether jobs start warm now, and why not."""
        with self._changed:
            child, forks = self._child, self._forks
            if child is None or child.loaded is None:
                why = self._problem or "the warm process is starting"
                return StartsReport(mode="cold", why=why, forks=forks)
        memory = process.own_memory(child.identity)
        return StartsReport(mode="warm", since=child.started_at, forks=forks, memory_bytes=memory)

    def _keep_running(self) -> None:
        early_ends = 0
        while not self._closed:
            began = time.monotonic()
            self._problem = ""
            try:
                self._wait_for_end(self._start())
            except OSError as error:
                self._problem = f"the warm process cannot be started: {error}"
            except Exception as error:  # without this thread, no other would ever start one
                logger.exception("cannot keep the warm process")
                self._problem = f"the warm process cannot be kept: {type(error).__name__}: {error}"
            early = bool(self._problem) or time.monotonic() - began < _EARLY_END_S
            early_ends = early_ends + 1 if early else 0
            delay = _RESTART_DELAYS_S[min(early_ends, len(_RESTART_DELAYS_S) - 1)]
            with self._changed:
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._closed, delay)

    def _start(self) -> _Child:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [sys.executable, "-P", "-u", "-m", "worker.engines.local.warm.process", str(theirs.fileno())]
        env = self._env | {"OPENBLAS_NUM_THREADS": "1"}  # otherwise NumPy starts threads when it is imported
        try:
            digest = fingerprint(self._env)
            identity = orphans.start(command, env=env, log=None, keep=(theirs.fileno(),))
        except OSError:
            ours.close()
            raise
        finally:
            theirs.close()
        child = _Child(identity, ours, digest, datetime.now(UTC))
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
            if ready is None and not self._closed and self._child is child:  # it was not released meanwhile
                self._problem = "the warm process ended before it was ready: the worker's log says why"
                logger.warning("%s", self._problem)
            if self._child is not None and self._child.identity == child.identity:
                self._child = None
            child.channel.close()

    def _is_outdated(self, child: _Child) -> bool:
        """Returns whether the code or the packages have changed. Looks at most once a second: there are many files."""
        if time.monotonic() < self._next_look:
            return False
        self._next_look = time.monotonic() + LOOK_EVERY_S
        return child.fingerprint != fingerprint(self._env)

    def _release_child(self) -> None:
        """Closes our end of the socket, which makes the warm process exit."""
        child, self._child = self._child, None
        if child is not None:
            child.channel.shutdown(socket.SHUT_RDWR)


def _request_fork(child: _Child, run: Path, *, descriptors: Sequence[int]) -> ForkReply:
    request = ForkRequest(run=str(run)).to_json().encode()
    try:
        socket.send_fds(child.channel, [request], descriptors)
    except OSError as error:
        raise WarmProcessUnavailable(f"the warm process has ended: {error}") from None
    reply = _receive(child.channel, ForkReply, timeout=FORK_S)
    if reply is None:
        process.send(child.identity, signal.SIGKILL)  # a late reply would be taken for the next one
        process.wait(child.identity, timeout=FORK_S)  # until its end, it may hold the lock that it was sent
        raise NoAnswer
    return reply


def _receive(channel: socket.socket, kind: type[T], *, timeout: float) -> T | None:
    """Returns the next message, or None if none comes in time or it is not valid."""
    try:
        if not process.readable([channel.fileno()], timeout=timeout):
            return None
        message = channel.recv(LIMIT)
        return kind.from_json(message) if message else None
    except (OSError, ValueError):  # ValueError: it is not valid, or the channel was closed
        return None

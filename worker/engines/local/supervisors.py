"""Starts the supervisor of an attempt, at most one at a time, and finds one that was started."""

from collections.abc import Generator, Mapping
from contextlib import contextmanager
import fcntl
import os
import sys
import time
from types import MappingProxyType

from torchyard.contract.attempts.records import ProcessIdentity
from torchyard.contract.attempts.rundir import RunDir
from torchyard.host.failpoints import failpoint
from torchyard.host.untrusted import read_untrusted
from worker.engines.local.environment import inherited
from worker.engines.local.launchers.secrets import sealed
from worker.engines.local.warm.manager import NoAnswer, WarmProcess, WarmProcessUnavailable
from worker.host import orphans

_DEADLINE_S = 20.0
_POLL_S = 0.02


def start(
    run: RunDir, *, secrets: Mapping[str, str] = MappingProxyType({}), warm: WarmProcess | None = None
) -> ProcessIdentity | None:
    """Starts the supervisor of a prepared run directory. Returns its identity, or None if one runs already.

    It is a fork of the warm process, or without one a program of its own. It has a session of its own and outlives the
    worker. Raises OSError, and WarmProcessUnavailable if the warm process has started nothing.
    """
    failpoint("launch.start.before")
    with sealed(secrets) as memory, orphans.registering() as register:
        supervisor = _fork(run, warm, secrets=memory) if warm is not None else _execute(run, secrets=memory)
        if supervisor is not None:
            register(supervisor)
    failpoint("launch.start.after")
    return supervisor


def is_running(run: RunDir) -> bool:
    """Returns whether a supervisor of the attempt runs, even if it has not written its record yet. Raises OSError."""
    with _lock(run) as lock:
        return lock is None


def recorded(run: RunDir) -> ProcessIdentity | None:
    """Returns the attempt's supervisor by its own record, whether or not it still runs."""
    return read_untrusted(run.supervisor, ProcessIdentity)


def wait_for_record(run: RunDir) -> ProcessIdentity | None:
    """Waits for the record of a supervisor that was started. Returns None if it never writes one."""
    deadline = time.monotonic() + _DEADLINE_S
    while time.monotonic() < deadline:
        supervisor = recorded(run)
        if supervisor is not None:
            return supervisor
        time.sleep(_POLL_S)
    return None


def _fork(run: RunDir, warm: WarmProcess, *, secrets: int) -> ProcessIdentity | None:
    try:
        with _lock(run) as lock, run.supervisor_log.open("ab") as log:
            if lock is None:
                return None
            return warm.fork(run.root.absolute(), lock=lock, log=log.fileno(), secrets=secrets)
    except NoAnswer:
        if not is_running(run):  # it ended before it could fork a supervisor
            raise WarmProcessUnavailable("the warm process ended during the request") from None
        return wait_for_record(run)


def _execute(run: RunDir, *, secrets: int) -> ProcessIdentity | None:
    command = [sys.executable, "-P", "-m", "worker.engines.local.supervisor", str(run.root.absolute()), str(secrets)]
    with _lock(run) as lock, run.supervisor_log.open("ab") as log:
        if lock is None:
            return None
        return orphans.start(command, env=inherited(os.environ), log=log, keep=(lock, secrets))


@contextmanager
def _lock(run: RunDir) -> Generator[int | None]:
    """Yields a locked descriptor, or None if another process holds the lock.

    The supervisor inherits the descriptor: the lock is held from before its start until its end.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(run.ctl / "supervisor.lock", flags, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield None
        else:
            yield descriptor
    finally:
        os.close(descriptor)

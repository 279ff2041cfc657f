"""Starting the supervisor of an attempt, at most one at a time, and finding one that was started."""

from collections.abc import Generator
from contextlib import contextmanager
import fcntl
import os
import sys

from torchyard.failpoints import failpoint
from torchyard.rundir import ProcessIdentity, RunDir
from worker.engines.local import orphans
from worker.engines.local.environment import inherited
from worker.untrusted import read_untrusted


def start(run: RunDir) -> ProcessIdentity | None:
    """Starts the supervisor of a prepared run directory, and answers who it is. None where one runs already.

    It is in a session of its own and outlives the worker; while the worker lives, a thread waits for it, so that it
    leaves no zombie. Raises OSError.
    """
    failpoint("launch.start.before")
    with _lock(run) as lock:
        if lock is None:
            return None
        command = [sys.executable, "-P", "-m", "worker.engines.local.supervisor", str(run.root.absolute())]
        with run.supervisor_log.open("ab") as log:
            supervisor = orphans.start(command, env=inherited(os.environ), log=log, keep=lock)
    failpoint("launch.start.after")
    return supervisor


def is_running(run: RunDir) -> bool:
    """Whether a supervisor of the attempt runs, also one that has not said yet who it is. Raises OSError."""
    with _lock(run) as lock:
        return lock is None


def recorded(run: RunDir) -> ProcessIdentity | None:
    """Who the attempt's supervisor is or was, by its own record."""
    return read_untrusted(run.supervisor, ProcessIdentity)


@contextmanager
def _lock(run: RunDir) -> Generator[int | None]:
    """A locked descriptor; None where another has the lock.

    A supervisor inherits it: the lock is held from before the fork until the supervisor has ended, whoever else ends.
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

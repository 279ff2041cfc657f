"""Finds the processes that a killed supervisor leaves: they become children of the worker.

A search by job and attempt misses a process that emptied its environment and left its parents, but this finds it. A
supervisor that the warm process has forked becomes a child of the worker too, when the warm process ends: so it is
registered before.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
import contextlib
from contextlib import contextmanager
from datetime import timedelta
import logging
import os
import subprocess
import threading
from typing import BinaryIO

from torchyard.contract.attempts.records import ProcessIdentity
from torchyard.host.identity import identity_of
from worker.host import process

logger = logging.getLogger(__name__)

_lock = threading.RLock()
"""Held from the start of a child until it is registered, and while orphans are separated from registered children."""
_registered: set[ProcessIdentity] = set()
"""The children of this process that are no orphans."""
_collecting = threading.Event()


def start_collecting() -> None:
    """Makes this process the parent of what its supervisors leave. Raises OSError."""
    process.become_subreaper()
    _collecting.set()


@contextmanager
def registering() -> Generator[Callable[[ProcessIdentity], None]]:
    """Holds the lock while the block starts a process, and yields the function that registers it as no orphan."""
    with _lock:
        yield _registered.add


def unregister(ended: ProcessIdentity) -> None:
    """Forgets a process that has ended, and reaps it if it is a child of this process."""
    _registered.discard(ended)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(ended.pid, os.WNOHANG)


def start(
    command: Sequence[str], *, env: Mapping[str, str], log: BinaryIO | None, keep: Sequence[int]
) -> ProcessIdentity:
    """Starts and registers a child in a session of its own, and a thread that reaps it.

    The child inherits the descriptors `keep`, and, without a `log`, the stdout and stderr of this process. Returns its
    identity, even if it has ended already. Raises OSError.
    """
    with _lock:
        child = subprocess.Popen(
            command,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            pass_fds=keep,
        )
        identity = identity_of(child.pid)
        assert identity is not None, "it was not reaped yet"
        _registered.add(identity)
    try:
        threading.Thread(target=_reap, args=(child, identity), name=f"reaper of {child.pid}", daemon=True).start()
    except RuntimeError as error:  # `subprocess` reaps it at one of the next starts
        logger.warning("process %d has no thread that reaps it: %s", child.pid, error)
    return identity


def find(job_id: str, attempt: int) -> list[ProcessIdentity]:
    """As `process.find`, and every orphan, of whichever attempt: a supervisor that is alive leaves none."""
    return [*process.find(job_id, attempt), *_running_orphans()]


def kill_attempt(job_id: str, attempt: int, *, timeout: timedelta) -> list[ProcessIdentity]:
    """Kills what `find` finds. Returns the processes that are still alive after `timeout`."""
    return process.kill_all(lambda: find(job_id, attempt), timeout=timeout)


def _reap(child: subprocess.Popen[bytes], identity: ProcessIdentity) -> None:
    child.wait()
    _registered.discard(identity)


def _running_orphans() -> list[ProcessIdentity]:
    """Returns the orphans and their descendants. Reaps the orphans that have ended."""
    if not _collecting.is_set():
        return []
    with _lock:
        running, zombies = process.reparented_children(_registered)
        for pid in zombies:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
    return running

"""What a killed supervisor leaves: it becomes a child of the worker that started the supervisor, and is found by that.

A supervisor that the warm process has started becomes one, too, when the warm process ends: it is known before.

A search by job and attempt misses a process that emptied its environment and left its parents.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
import contextlib
from contextlib import contextmanager
from datetime import timedelta
import os
import subprocess
import threading
from typing import BinaryIO

from torchyard.contract.records import ProcessIdentity
from worker.engines.local import process

_lock = threading.RLock()
"""Held from the start of a child until it is among `_own`, and while it is decided who is not."""
_own: set[ProcessIdentity] = set()
_adopting = threading.Event()


def adopt() -> None:
    """Makes this process the parent of what its supervisors leave. Raises OSError."""
    process.become_subreaper()
    _adopting.set()


@contextmanager
def beginning() -> Generator[Callable[[ProcessIdentity], None]]:
    """While a process begins that is no orphan, whoever its parent becomes. What is called with it makes it known."""
    with _lock:
        yield _own.add


def forget(known: ProcessIdentity) -> None:
    """It has ended. Where it is a child of this process, it leaves no zombie."""
    _own.discard(known)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(known.pid, os.WNOHANG)


def start(command: Sequence[str], *, env: Mapping[str, str], log: BinaryIO | None, keep: int) -> ProcessIdentity:
    """Starts a child that is no orphan, in a session of its own, and a thread that waits for it, so that it leaves no
    zombie. It inherits the descriptor `keep`, and without a `log` this process's own stdout and stderr. Answers who it
    is, also where it has ended already. Raises OSError.
    """
    with _lock:
        child = subprocess.Popen(
            command,
            env=env,
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            pass_fds=(keep,),
        )
        identity = ProcessIdentity.of(child.pid)
        assert identity is not None, "nobody has waited for it"
        _own.add(identity)
    threading.Thread(target=_wait, args=(child, identity), name=f"reaper of {child.pid}", daemon=True).start()
    return identity


def find(job_id: str, attempt: int) -> list[ProcessIdentity]:
    """As process.find, and every orphan, of whichever attempt: a supervisor that lives leaves none."""
    return [*process.find(job_id, attempt), *_running()]


def kill_attempt(job_id: str, attempt: int, *, timeout: timedelta) -> list[ProcessIdentity]:
    """Ends what `find` finds. Answers who still lives after `timeout`."""
    return process.kill_all(lambda: find(job_id, attempt), timeout=timeout)


def _wait(child: subprocess.Popen[bytes], identity: ProcessIdentity) -> None:
    child.wait()
    _own.discard(identity)


def _running() -> list[ProcessIdentity]:
    """The orphans, and what is below them. Those that have ended are reaped."""
    if not _adopting.is_set():
        return []
    with _lock:
        running, ended = process.foundlings(_own)
        for pid in ended:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
    return running

"""The processes of this host: which one is which, who descends from whom, and ending them. Reads `/proc`."""

from collections.abc import Callable, Collection, Iterable
import contextlib
import ctypes
from dataclasses import dataclass
from datetime import timedelta
import errno
import functools
import os
from pathlib import Path
import re
import select
import signal
import time
from typing import Literal

from torchyard.contract.records import ProcessIdentity
from torchyard.contract.rundir import Env, process_title

_PAUSE = 0.02  # seconds between two looks at what a SIGKILL has left
_PR_SET_CHILD_SUBREAPER = 36
_GONE = {errno.ESRCH, errno.EINVAL}
"""What pidfd_open says where the process is gone; EINVAL where only a group or a session has its number."""


def identity(pid: int) -> ProcessIdentity | None:
    """Who has `pid` now; None where nobody has."""
    return ProcessIdentity.of(pid)


def state(process: ProcessIdentity) -> Literal["runs", "stopped", "gone"]:
    """How exactly that process is. `stopped` (SIGSTOP, a debugger): until it goes on, only SIGKILL reaches it. A zombie
    is gone.
    """
    found = _read(process.pid)
    if found is None or not found.running:
        return "gone"
    if found.start_time != process.start_time or process.boot_id != boot_id():
        return "gone"
    return "stopped" if found.state in b"Tt" else "runs"


def is_alive(process: ProcessIdentity) -> bool:
    """Whether exactly that process still runs."""
    return state(process) != "gone"


def is_stopped(process: ProcessIdentity) -> bool:
    """Whether exactly that process is stopped."""
    return state(process) == "stopped"


def wait(process: ProcessIdentity, *, timeout: float | None = None) -> None:
    """Returns when exactly that process has ended, whoever its parent is, or after `timeout` seconds."""
    try:
        descriptor = os.pidfd_open(process.pid)
    except OSError as error:
        if error.errno in _GONE:
            return
        raise
    try:
        if is_alive(process):
            readable([descriptor], timeout=timeout)
    finally:
        os.close(descriptor)


def readable(descriptors: Iterable[int], *, timeout: float | None = 0.0) -> bool:
    """Waits up to `timeout` seconds (None: for ever) until one of them can be read. Any number will do, also one above
    1023, for which `select` raises."""
    look = select.poll()
    for descriptor in descriptors:
        look.register(descriptor, select.POLLIN)
    return bool(look.poll(None if timeout is None else timeout * 1000))


def own_memory(process: ProcessIdentity) -> int | None:
    """The bytes of memory that it does not share with a file, resident; None where it is gone."""
    try:
        status = Path(f"/proc/{process.pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    found = re.search(r"^RssAnon:\s+(\d+) kB$", status, re.MULTILINE)
    return int(found[1]) << 10 if found else None


def descendants(*pids: int) -> list[ProcessIdentity]:
    """Every running process below any of `pids`, at any depth, zombies' children included."""
    table = _table()
    return [table[child].identity for child in sorted(_below(table, pids)) if table[child].running]


def find(job_id: str, attempt: int) -> list[ProcessIdentity]:
    """Every running process of the attempt, its supervisor included: by environment or title, and all below those.

    The caller is never among them. A process that dropped its environment and lost its parents is not found.
    """
    table = _table()
    named = [pid for pid in table if _belongs(pid, job_id, attempt)]
    pids = {*named, *_below(table, named)} - {os.getpid()}
    return [table[pid].identity for pid in sorted(pids) if table[pid].running]


def become_subreaper() -> None:
    """From now on, what a dead descendant leaves behind becomes a child of this process. Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl(PR_SET_CHILD_SUBREAPER): {os.strerror(number)}")


def foundlings(own: Collection[ProcessIdentity]) -> tuple[list[ProcessIdentity], list[int]]:
    """The children of this process that are neither among `own` nor of its session: who runs of them and below them,
    and the pids of those that are zombies.

    What a library starts on the way is of this process's session, and is left to it.
    """
    table, me, session = _table(), os.getpid(), os.getsid(0)
    found = [item for item in table.values() if item.parent == me and item.session != session]
    strangers = [item.pid for item in found if item.identity not in own]
    pids = {*strangers, *_below(table, strangers)}
    running = [table[pid].identity for pid in sorted(pids) if table[pid].running]
    return running, [pid for pid in strangers if table[pid].state == b"Z"]


def send(process: ProcessIdentity, number: signal.Signals) -> bool:
    """Signals exactly that process: never one that has its pid by now, never the caller. False where it is gone.

    Raises PermissionError for a process of another user.
    """
    if process.pid == os.getpid():
        return False
    try:
        descriptor = os.pidfd_open(process.pid)
    except OSError as error:
        if error.errno in _GONE:
            return False
        raise
    try:
        if not is_alive(process):
            return False
        signal.pidfd_send_signal(descriptor, number)
    except ProcessLookupError:
        return False
    finally:
        os.close(descriptor)
    return True


def kill_all(left: Callable[[], Iterable[ProcessIdentity]], *, timeout: timedelta | None) -> list[ProcessIdentity]:
    """SIGKILLs what `left` finds, in its order, until it finds nothing. Returns who still lives after `timeout`."""
    deadline = None if timeout is None else time.monotonic() + timeout.total_seconds()
    while survivors := list(left()):
        for process in survivors:
            with contextlib.suppress(PermissionError):  # it stays among the survivors
                send(process, signal.SIGKILL)
        if deadline is not None and time.monotonic() > deadline:
            return [process for process in survivors if is_alive(process)]
        time.sleep(_PAUSE)
    return []


def kill_attempt(job_id: str, attempt: int, *, timeout: timedelta = timedelta(seconds=30)) -> list[ProcessIdentity]:
    """Ends every process of an attempt, its supervisor included. Returns who still lives after `timeout`."""
    return kill_all(lambda: find(job_id, attempt), timeout=timeout)


def stubborn(left: Iterable[ProcessIdentity]) -> str:
    """What to tell of processes that outlived `kill_all`."""
    pids = ", ".join(str(process.pid) for process in left)
    return f"these processes cannot be killed, and keep the devices of the attempt until they end: {pids}"


@functools.cache
def boot_id() -> str:
    """What tells one start of this host from another."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


@dataclass(frozen=True)
class _Process:
    pid: int
    parent: int
    session: int
    state: bytes
    start_time: int

    @property
    def running(self) -> bool:
        return self.state not in b"ZXx"

    @property
    def identity(self) -> ProcessIdentity:
        return ProcessIdentity(pid=self.pid, start_time=self.start_time, boot_id=boot_id())


def _table() -> dict[int, _Process]:
    found = (_read(int(entry.name)) for entry in os.scandir("/proc") if entry.name.isdecimal())
    return {process.pid: process for process in found if process is not None}


def _read(pid: int) -> _Process | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = stat.rpartition(b")")[2].split()
    return _Process(pid, int(fields[1]), int(fields[3]), fields[0], int(fields[19]))


def _below(table: dict[int, _Process], roots: Iterable[int]) -> set[int]:
    children: dict[int, list[int]] = {}
    for process in table.values():
        children.setdefault(process.parent, []).append(process.pid)
    found: set[int] = set()
    pending = list(roots)
    while pending:
        for child in children.get(pending.pop(), ()):
            if child not in found:
                found.add(child)
                pending.append(child)
    return found


def _belongs(pid: int, job_id: str, attempt: int) -> bool:
    try:
        if Path(f"/proc/{pid}/cmdline").read_bytes().startswith(process_title(job_id, attempt, "").encode()):
            return True
        environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return False  # it has ended, or is another user's
    return f"{Env.JOB_ID}={job_id}".encode() in environment and f"{Env.ATTEMPT}={attempt}".encode() in environment

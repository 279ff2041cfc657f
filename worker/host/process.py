"""Identifies, finds and kills processes of this host. Reads `/proc`."""

from collections.abc import Callable, Collection, Generator, Hashable, Iterable, Mapping
import contextlib
import ctypes
from datetime import timedelta
import errno
import os
from pathlib import Path
import re
import select
import signal
import time
from typing import Literal, TypeVar

from torchyard.contract.attempts.records import ProcessIdentity
from torchyard.contract.attempts.rundir import Env, process_title
from torchyard.host.identity import boot_id, identity_of
from worker.host.proctable import descendants_of, read_stat, read_table

K = TypeVar("K", bound=Hashable)
Send = Callable[[ProcessIdentity, signal.Signals], bool]
"""Signals a process. Returns False if it has ended. Raises PermissionError for one of another user."""

_KILL_POLL_S = 0.02

_MOST_REAPED = 10_000
_MOST_CHASED = 1000

_PR_SET_CHILD_SUBREAPER = 36
_GONE = {errno.ESRCH, errno.EINVAL}
"""The errors of pidfd_open for a process that has ended. EINVAL: its pid is now only that of a group or a session."""


def identity(pid: int) -> ProcessIdentity | None:
    """Returns the process that has `pid` now, or None."""
    return identity_of(pid)


def state(process: ProcessIdentity) -> Literal["runs", "stopped", "gone"]:
    """Returns the state of exactly that process.

    `stopped` (by SIGSTOP or a debugger): until it continues, it reacts to SIGKILL alone. A zombie is `gone`.
    """
    stat = read_stat(process.pid)
    if stat is None or not stat.running:
        return "gone"
    if stat.start_time != process.start_time or process.boot_id != boot_id():
        return "gone"
    return "stopped" if stat.state in b"Tt" else "runs"


def is_alive(process: ProcessIdentity) -> bool:
    """Returns whether exactly that process still runs."""
    return state(process) != "gone"


def is_stopped(process: ProcessIdentity) -> bool:
    """Returns whether exactly that process is stopped."""
    return state(process) == "stopped"


def wait(process: ProcessIdentity, *, timeout: float | None = None) -> None:
    """Waits until exactly that process has ended, whoever its parent is, or for `timeout` seconds."""
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
    """Waits up to `timeout` seconds (None: for ever) until one of them can be read. Returns whether one can.

    Unlike `select`, it accepts descriptors above 1023.
    """
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(None if timeout is None else timeout * 1000))


def own_memory(process: ProcessIdentity) -> int | None:
    """Returns the resident bytes that the process does not share with a file, or None if it has ended."""
    try:
        status = Path(f"/proc/{process.pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    match = re.search(r"^RssAnon:\s+(\d+) kB$", status, re.MULTILINE)
    return int(match[1]) << 10 if match else None


def descendants(*pids: int) -> list[ProcessIdentity]:
    """Returns every running descendant of `pids`, those of zombies included."""
    table = read_table()
    return [table[child].identity for child in sorted(descendants_of(table, pids)) if table[child].running]


def processor_seconds(roots: Mapping[K, Collection[int]]) -> dict[K, float]:
    """Returns the processor time of each group of processes, with their descendants, running or waited for."""
    table = read_table() if roots else {}
    trees = {key: {*pids, *descendants_of(table, pids)} for key, pids in roots.items()}
    return {key: sum(table[pid].seconds for pid in tree if pid in table) for key, tree in trees.items()}


def find(job_id: str, attempt: int, *, since: int = 0, below: Collection[int] = ()) -> list[ProcessIdentity]:
    """Finds every running process of the attempt, its supervisor included: by environment or title, and descendants.

    `since`: the start time before which none of them began; to read only what is newer costs a tenth. `below`:
    processes whose descendants are of the attempt too. The caller is never among those that are found. A process that
    dropped its environment and lost its parents is not found.
    """
    table = read_table()
    newer = [pid for pid, process in table.items() if process.start_time >= since]
    named = [pid for pid in newer if _belongs(pid, job_id, attempt) and _may_claim(pid)]
    pids = {*named, *descendants_of(table, (*named, *below))} - {os.getpid()}
    return [table[pid].identity for pid in sorted(pids) if table[pid].running]


def become_subreaper() -> None:
    """Makes this process the parent of the children that a dead descendant leaves. Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl(PR_SET_CHILD_SUBREAPER): {os.strerror(number)}")


def reparented_children(own: Collection[ProcessIdentity]) -> tuple[list[ProcessIdentity], list[int]]:
    """Finds the children of this process that it got from dead descendants: not among `own`, in another session.

    Returns those that run and their descendants, and the pids of those that are zombies. A child that a library
    started has the session of this process, so it is not among them.
    """
    table, me, session = read_table(), os.getpid(), os.getsid(0)
    children = [item for item in table.values() if item.parent == me and item.session != session]
    reparented = [item.pid for item in children if item.identity not in own]
    pids = {*reparented, *descendants_of(table, reparented)}
    running = [table[pid].identity for pid in sorted(pids) if table[pid].running]
    return running, [pid for pid in reparented if table[pid].state == b"Z"]


def reap_children() -> Generator[tuple[int, int]]:
    """Reaps the children of this process that have ended. Yields the pid and the exit code of each.

    It stops after many: a chain of forks may leave new ones as fast as they are reaped.
    """
    for _ in range(_MOST_REAPED):
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not pid:
            return
        yield pid, os.waitstatus_to_exitcode(status)


def kill_children() -> bool:
    """Kills the children of this process, again and again for a moment. Returns whether it still has one.

    A process that forks and ends at once is not found by a search of all processes: its child has another pid by then.
    But a subreaper always has some child of such a chain. No other process gets the pid of a child that is not reaped.
    """
    for _ in range(_MOST_CHASED):
        for pid in _children():
            with contextlib.suppress(PermissionError):  # a set-user-ID program, where jobs are not isolated
                os.kill(pid, signal.SIGKILL)
        for _ in reap_children():
            pass
        if not has_children():
            return False
    return True


def has_children() -> bool:
    """Returns whether the kernel knows of a child of this process, or of a zombie that it has not reaped."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def send(process: ProcessIdentity, number: signal.Signals) -> bool:
    """Signals exactly that process: never another one that has its pid by now, and never the caller.

    Returns False if it has ended. Raises PermissionError for a process of another user.
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


def depth(pid: int) -> int:
    """Returns how many pid namespaces a process is in, as far as this one sees. Raises OSError."""
    return _namespace_of(pid)[0]


def kill_all(
    find_all: Callable[[], Iterable[ProcessIdentity]],
    *,
    timeout: timedelta | None,
    send_by: Send | None = None,
) -> list[ProcessIdentity]:
    """Kills what `find_all` finds, in its order, until it finds nothing. Returns what is alive after `timeout`.

    `send_by` is called instead of `send`, if it is given.
    """
    deadline = None if timeout is None else time.monotonic() + timeout.total_seconds()
    while survivors := list(find_all()):
        for process in survivors:
            with contextlib.suppress(PermissionError):  # it stays among the survivors
                (send_by or send)(process, signal.SIGKILL)
        if deadline is not None and time.monotonic() > deadline:
            return [process for process in survivors if is_alive(process)]
        time.sleep(_KILL_POLL_S)
    return []


def describe_unkillable(survivors: Iterable[ProcessIdentity]) -> str:
    """Returns the message about processes that `kill_all` could not kill."""
    pids = ", ".join(str(process.pid) for process in survivors)
    return f"these processes cannot be killed, and keep the devices of the attempt until they end: {pids}"


def _children() -> list[int]:
    me = os.getpid()
    try:
        return [int(pid) for pid in Path(f"/proc/{me}/task/{me}/children").read_bytes().split()]
    except FileNotFoundError:  # a kernel without CONFIG_PROC_CHILDREN
        return [pid for pid, process in read_table().items() if process.parent == me]


def _belongs(pid: int, job_id: str, attempt: int) -> bool:
    title = process_title(job_id, attempt, "")
    try:
        if _read(pid, "cmdline").startswith(title.encode()):
            return True
        environment = _read(pid, "environ")
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return False  # it has ended, or is another user's
    variables = (f"{Env.JOB_ID}={job_id}".encode(), f"{Env.ATTEMPT}={attempt}".encode())
    return variables[0] in environment and {*variables} <= {*environment.split(b"\0")}


def _read(pid: int, name: str) -> bytes:
    with open(f"/proc/{pid}/{name}", "rb", buffering=0) as file:  # noqa: PTH123 as of the table
        return file.read()


def _may_claim(pid: int) -> bool:
    """Returns whether to believe what a process says of itself: a job could name its processes after another job's.

    In a pid namespace of an attempt, the first process alone is believed. The others are found as its descendants.
    """
    try:
        depth, inside = _namespace_of(pid)
    except (FileNotFoundError, ProcessLookupError):
        return False
    own, _ = _namespace_of(os.getpid())
    return depth == own or (depth == own + 1 and inside == 1)


def _namespace_of(pid: int) -> tuple[int, int]:
    """Returns how deep the pid namespace of a process is, and the pid that it has there."""
    match = re.search(rb"^NSpid:\t([\d\t]+)$", Path(f"/proc/{pid}/status").read_bytes(), re.MULTILINE)
    pids = match[1].split() if match is not None else []
    return len(pids), int(pids[-1]) if pids else pid

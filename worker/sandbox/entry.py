"""Enters the sandbox of an attempt."""

from collections.abc import Callable
import os

from torchyard.contract.records import Sandbox
from torchyard.host import inspection
from worker.sandbox import init, landlock, namespaces, privileges, seccomp
from worker.sandbox.policy import rules


def fork(sandbox: Sandbox | None) -> int:
    """Forks a child that is to call `enter`, as `os.fork` does. Raises OSError."""
    return namespaces.fork() if sandbox is not None and sandbox.own_pids else os.fork()


def enter(sandbox: Sandbox, *, ended: Callable[[int], None] | None, stops: Callable[[], bool]) -> None:
    """Restricts this process, which must have one thread, and its descendants. Raises OSError.

    They share one domain: they may signal and inspect each other, but no process outside.

    With pids of its own, this returns in a child of the process that `fork` has made, and `ended` gets the exit code of
    that child; without `ended`, in the process itself, which must reap all children, and none of them may inspect it.
    `stops`: as of `init.fork_agent`.
    """
    inspection.permit()  # a user namespace needs it, and so do debuggers inside the sandbox
    if sandbox.own_mounts:
        namespaces.map_user() if sandbox.own_pids else namespaces.unshare(pids=False)
        namespaces.make_mounts(
            sandbox.writable,
            pids=sandbox.own_pids,
            readable=sandbox.readable,
            closed=sandbox.closed,
            data_dir=sandbox.data_dir,
            own=sandbox.own,
            temporary=sandbox.temporary,
            temporary_at=sandbox.temporary_at,
            names_threads=sandbox.names_threads,
        )
    privileges.drop()
    privileges.limit_resources()
    if sandbox.landlock:
        landlock.restrict(rules(sandbox), closed=sandbox.closed, data_dir=sandbox.data_dir, own=sandbox.own)
    if sandbox.filtered:
        seccomp.restrict(others=not sandbox.own_pids, namespaces=sandbox.namespaces)
    if sandbox.own_pids:
        init.stay_first() if ended is None else init.fork_agent(ended, stops=stops)

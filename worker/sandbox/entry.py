"""Enters the sandbox of an attempt."""

from collections.abc import Callable
import os

from torchyard.contract.attempts.records import Sandbox
from torchyard.host import inspection
from worker.sandbox import init, landlock, namespaces, privileges, seccomp
from worker.sandbox.policy import rules
from worker.sandbox.threads import Names


def fork(sandbox: Sandbox | None) -> int:
    """Forks a child that is to call `enter`, as `os.fork` does. Raises OSError."""
    return namespaces.fork() if sandbox is not None and sandbox.own_pids else os.fork()


def enter(sandbox: Sandbox, *, reaps: bool, ended: Callable[[int], None], stops: Callable[[], bool]) -> None:
    """Restricts this process, which must have one thread, and its descendants. Raises OSError.

    They share one domain: they may signal and inspect each other, but no process outside.

    Where `forks` says so, this returns in a child of the process that `fork` has made, and `ended` gets the exit code
    of that child. Else it returns in the process itself. With pids of its own, that must reap all children, and none
    of them may inspect it. `stops`: as of `init.fork_agent`.
    """
    limits = landlock.limits_of(closed=sandbox.closed, data_dir=sandbox.data_dir, own=sandbox.own)
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
            shown=sandbox.shown,
        )
    privileges.drop()
    privileges.limit_resources()
    if sandbox.landlock:
        landlock.restrict(rules(sandbox), limits=limits)
    if sandbox.filtered:
        seccomp.restrict(others=not sandbox.own_pids, namespaces=sandbox.namespaces)
    if forks(sandbox, reaps=reaps):
        init.fork_agent(ended, stops=stops, names=Names.begin() if sandbox.names_threads else None)
    elif sandbox.own_pids:
        init.stay_first()


def forks(sandbox: Sandbox, *, reaps: bool) -> bool:
    """Returns whether the process that enters forks another one, which goes on: it answers calls, or only reaps.

    `reaps`: whether what goes on reaps all that loses its parent.
    """
    return sandbox.names_threads or (sandbox.own_pids and not reaps)

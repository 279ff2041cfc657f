"""Enters the sandbox of an attempt."""

from collections.abc import Callable

from torchyard.contract.records import Sandbox
from torchyard.host import inspection
from worker.sandbox import init, landlock, namespaces, privileges, seccomp
from worker.sandbox.policy import rules


def enter(sandbox: Sandbox, *, announce: Callable[[int], None], ended: Callable[[int], None] | None) -> None:
    """Restricts this process, which must have one thread, and its descendants. Raises OSError.

    They share one domain: they may signal and inspect each other, but no process outside.

    With pids of its own, `announce` gets the pid of the namespace's first process, which becomes a child of the
    caller's subreaper. This returns in a child of that process, whose exit code `ended` gets; without `ended`, in the
    first process itself, which must reap all children, and which none of them may inspect.
    """
    inspection.permit()  # a user namespace needs it, and so do debuggers inside the sandbox
    if sandbox.own_mounts:
        namespaces.unshare(pids=sandbox.own_pids)
        if sandbox.own_pids:
            init.become_init(announce)
        namespaces.make_mounts(
            sandbox.writable,
            pids=sandbox.own_pids,
            readable=sandbox.readable,
            closed=sandbox.closed,
            data_dir=sandbox.data_dir,
            own=sandbox.own,
            temporary=sandbox.temporary,
            temporary_at=sandbox.temporary_at,
        )
    privileges.drop()
    privileges.limit_resources()
    if sandbox.landlock:
        landlock.restrict(rules(sandbox), closed=sandbox.closed, data_dir=sandbox.data_dir, own=sandbox.own)
    if sandbox.filtered:
        seccomp.restrict(others=not sandbox.own_pids, namespaces=sandbox.namespaces)
    if sandbox.own_pids:
        init.stay_first() if ended is None else init.fork_agent(ended)

"""Enters the sandbox of an attempt."""

from torchyard.contract import inspection
from torchyard.contract.records import Sandbox
from worker.sandbox import landlock, namespaces, privileges
from worker.sandbox.policy import rules


def enter(sandbox: Sandbox) -> None:
    """Restricts this process, which must have one thread, and its descendants. Raises OSError.

    They share one domain: they may signal and inspect each other, but no process outside.
    """
    inspection.permit()  # a user namespace needs it, and so do debuggers inside the sandbox
    if sandbox.own_mounts:
        namespaces.enter_own_mounts(sandbox.writable)
    privileges.drop()
    privileges.limit_resources()
    if sandbox.landlock:
        landlock.restrict(rules(sandbox))

"""The processes of an attempt that a helper has started: they are not below its supervisor, and have another user."""

from torchyard.contract.attempts.records import LaunchPlan, ProcessIdentity
from torchyard.contract.attempts.rundir import RunDir
from torchyard.host.untrusted import read_untrusted
from worker.host import process
from worker.sandbox.strict import client


def processes(init: ProcessIdentity) -> list[ProcessIdentity]:
    """Returns the first process of an attempt and all below it, or nothing if it has ended."""
    processes = [init, *process.descendants(init.pid)]
    return (
        processes if process.is_alive(init) else []
    )  # checked last: until here, no other process can have had its pid


def recorded_processes(run: RunDir) -> list[ProcessIdentity]:
    """Returns the same for the attempt in `run`, and nothing for one that no helper has started."""
    init = read_untrusted(run.init, ProcessIdentity)
    return [] if init is None else processes(init)


def sender(run: RunDir) -> process.Send:
    """Returns the function that signals processes of the attempt in `run`, as `process.send` does. Raises OSError."""
    plan = read_untrusted(run.launch, LaunchPlan)
    strict = plan.sandbox.strict if plan is not None and plan.sandbox is not None else None
    if plan is None or strict is None:
        return process.send
    job_id, attempt = plan.job_id, plan.attempt
    return lambda target, number: client.signal_process(strict, target, number, job_id=job_id, attempt=attempt)

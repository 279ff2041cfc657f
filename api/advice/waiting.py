"""Advice about a queued job: why the scheduler does not start it, and what would let it start."""

from collections.abc import Sequence

from api import blocking
from api.advice import failure
from api.advice.facts import Facts, shown
from torchyard.contract.advice import AdviceView
from torchyard.contract.cluster.fitting import is_named, suitable
from torchyard.contract.cluster.views import WorkerView
from torchyard.contract.jobs.views import AfterView
from torchyard.contract.spec.resources import Resources
from torchyard.contract.states import WAITS_FOR_JOBS

_GIB = 1 << 30
_RETRYING = "retrying"
_NOUNS = {"cuda": "GPUs", "cpu": "CPU slots"}
_HEADLINES = {
    "no_such_device": "waits: no worker has such a device",
    "too_big": "waits: no worker is large enough",
    "no_such_worker": "waits: the workers it may use do not answer",
    "devices_busy": "waits for devices",
    "reserved": "waits: devices are reserved for it",
    "preempting": "waits: preempts other jobs",
    "quota": "waits: the quota of its owner is used up",
    "pool_away": "waits: its pool accepts no jobs",
    "pool_ahead": "waits: its owner has enough jobs waiting in the pool",
    "pool_next": "waits for its pool",
    WAITS_FOR_JOBS: "waits for other jobs",
}
_STEPS = {
    "quota": "It starts when other jobs of its owner end, or an administrator raises the quota.",
    "pool_ahead": "It is submitted when a job of its owner there starts or ends.",
}
"""By the code of the scheduler's reason. So are the headlines."""


def judge(facts: Facts) -> AdviceView:
    """Returns the advice about a job that waits."""
    if facts.job.status_reason.code == _RETRYING and facts.failure is not None:
        return failure.judge(facts)
    reason = facts.job.status_reason
    return AdviceView(
        headline=_HEADLINES.get(reason.code, "waits"),
        cause=shown(_cause(facts)),
        steps=_steps(facts),
        severity="warning" if reason.code in {"too_big", "no_such_device", "no_such_worker"} else "info",
    )


def _cause(facts: Facts) -> str:
    job, reason = facts.job, facts.job.status_reason
    return blocking.named(
        reason.message, reason.code, job.spec.resources, facts.workers, owner=job.owner, job_id=job.id
    )


def _steps(facts: Facts) -> list[str]:
    wanted = facts.job.spec.resources
    # A job that names a pool starts there alone, and others start on hosts alone.
    alive = [worker for worker in facts.workers if worker.state != "lost" and (worker.pool is None or wanted.pool)]
    match facts.job.status_reason.code:
        case "waiting" | "resumed" if not alive:
            return ["Start a worker: none is running."]
        case "no_such_device":
            return _for_no_such_device(wanted, alive)
        case "too_big":
            return _for_too_big(wanted, alive)
        case "devices_busy":
            return _for_busy_devices(wanted, alive)
        case code if code == WAITS_FOR_JOBS:
            return [_of_awaited(each) for each in facts.job.after if not _has_ended(each)]
        case code:
            return [_STEPS[code]] if code in _STEPS else []


def _has_ended(awaited: AfterView) -> bool:
    return awaited.state is not None and awaited.state.terminal


def _of_awaited(awaited: AfterView) -> str:
    ending = {"succeeded": "succeeds", "failed": "fails"}.get(awaited.on, "ends")
    state = "" if awaited.state is None else f" (now {awaited.state})"
    return f"It starts when {awaited.name or awaited.job_id}{state} {ending}."


def _for_no_such_device(wanted: Resources, alive: Sequence[WorkerView]) -> list[str]:
    if not alive:
        return ["Start a worker: none is running."]
    devices = [device for worker in alive for device in worker.devices]
    if wanted.gpu is not None:
        names = sorted({device.name for device in devices if device.kind == "cuda"})
        if not names:
            return [f"Start a worker with {' or '.join(wanted.gpu)}: none has a GPU."]
        if not any(is_named(name, one) for name in names for one in wanted.gpu):
            return [f"Set resources.gpu to what the workers have: {', '.join(names)}."]
    if wanted.min_memory_gb:
        plain = wanted.model_copy(update={"min_memory_gb": None})
        largest = max((device.memory_bytes or 0 for device in suitable(plain, devices)), default=0) // _GIB
        if largest:
            return [f"Set resources.min_memory_gb to at most {largest}: no device has more."]
    kinds = sorted({device.kind for device in devices})
    others = [
        f"Set resources.device to {kind}: the workers have {_NOUNS[kind]}." for kind in kinds if kind != wanted.device
    ]
    return others if wanted.device != "auto" else ["Start a worker that has devices: none has any."]


def _for_too_big(wanted: Resources, alive: Sequence[WorkerView]) -> list[str]:
    """Names the largest devices_per_node, cpus or memory_gb that some worker can give."""
    most = max((len(suitable(wanted, worker.devices)) for worker in alive), default=0)
    if most < wanted.total_devices:
        return [f"Set resources.devices_per_node to at most {most}."] if most else []
    offers = [worker.starts for worker in alive if worker.starts is not None]
    cpus = max((offer.cpus or 0 for offer in offers), default=0)
    memory = max((offer.memory_gb or 0 for offer in offers), default=0)
    return [
        f"Set resources.{name} to at most {there:g}: no worker has more."
        for name, asked, there in (("cpus", wanted.cpus, cpus), ("memory_gb", wanted.memory_gb, memory))
        if asked and 0 < there < asked
    ]


def _for_busy_devices(wanted: Resources, alive: Sequence[WorkerView]) -> list[str]:
    """Says how many devices must become free, of the worker that lacks the fewest."""
    large = [worker for worker in alive if worker.state == "ready" and _suits(wanted, worker)]
    if not large:
        drained = [worker.name for worker in alive if worker.state == "draining" and _suits(wanted, worker)]
        again = f"It starts when {' or '.join(drained)} accepts jobs again"
        return [f"{again}: `torchyard undrain {drained[0]}`."] if drained else []
    nearest = max(large, key=lambda worker: (_free(wanted, worker), not _is_kept(wanted, worker)))
    free, is_kept = _free(wanted, nearest), _is_kept(wanted, nearest)
    missing = wanted.total_devices - free
    if missing <= 0:
        return [f"With a shorter time_limit it may start before {_reserved_for(wanted, nearest)}."] if is_kept else []
    more = "one more device" if missing == 1 else f"{missing} more devices"
    are = "is" if missing == 1 else "are"
    if is_kept:
        return [f"It starts when {more} of {nearest.name} {are} free and not reserved."]
    steps = [f"It starts when {more} of {nearest.name} {are} free."]
    if free:
        steps.append(f"With resources.devices_per_node {free} it fits on {nearest.name} now.")
    return steps


def _suits(wanted: Resources, worker: WorkerView) -> bool:
    """Returns whether the worker has enough devices that suit the job, free or not."""
    return len(suitable(wanted, worker.devices)) >= wanted.total_devices


def _free(wanted: Resources, worker: WorkerView) -> int:
    return sum(device.holder is None and device.blocked is None for device in suitable(wanted, worker.devices))


def _is_kept(wanted: Resources, worker: WorkerView) -> bool:
    """Returns whether devices of the worker that suit the job are reserved for another."""
    return bool(_reserved_for(wanted, worker))


def _reserved_for(wanted: Resources, worker: WorkerView) -> str:
    """Names the jobs for which devices of the worker that suit the job are reserved."""
    kinds = {device.kind for device in suitable(wanted, worker.devices)}
    return " and ".join(sorted(blocking.name_of(kept) for kept in worker.kept if kept.kind in kinds))

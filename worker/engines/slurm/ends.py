"""How an attempt ended that has left no report, by the word that Slurm has for its job."""

from dataclasses import dataclass

from torchyard.contract.attempts.records import ExitReport
from torchyard.contract.states import CANCELLED_BY_OWNER, DID_NOT_USE_GPUS, EndReason
from worker.engines.slurm.listing import Job

_REQUESTS = {
    EndReason.CANCELLED: CANCELLED_BY_OWNER,
    EndReason.PAUSED: "paused",
    EndReason.PREEMPTED: "preempted; the job goes back to the queue",
    EndReason.IDLE_TIMEOUT: DID_NOT_USE_GPUS,
}
_BY_STATE: dict[str, tuple[EndReason, str]] = {
    "COMPLETED": (EndReason.WORKER_LOST, "its job in Slurm has ended without a report"),
    "FAILED": (EndReason.WORKER_LOST, "its job in Slurm has failed without a report"),
    "CANCELLED": (EndReason.PREEMPTED, "its job was cancelled in Slurm; the job goes back to the queue"),
    "PREEMPTED": (EndReason.PREEMPTED, "preempted by Slurm; the job goes back to the queue"),
    "TIMEOUT": (EndReason.TIME_LIMIT, "Slurm has ended it at its time limit"),
    "DEADLINE": (EndReason.WORKER_LOST, "Slurm has ended it at a deadline that an operator has set"),
    "NODE_FAIL": (EndReason.WORKER_LOST, "a node has failed"),
    "BOOT_FAIL": (EndReason.WORKER_LOST, "a node has not booted"),
    "LAUNCH_FAILED": (EndReason.WORKER_LOST, "Slurm could not launch it"),
    "RECONFIG_FAIL": (EndReason.WORKER_LOST, "a node could not be configured"),
    "OUT_OF_MEMORY": (EndReason.OUT_OF_MEMORY, "a node has run out of the memory of the job (resources.memory_gb)"),
    "REVOKED": (EndReason.WORKER_LOST, "another cluster of the federation has taken its job"),
}
_QUOTED = 2_000


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What is left of an attempt."""

    ran: bool
    """Whether its coordinator has started."""
    requested: EndReason | None = None
    """The stop that was asked for."""
    log: str = ""
    """The end of what its batch job has written."""


def report_of(job: Job, evidence: Evidence) -> ExitReport:
    """Returns the report of an attempt whose job is listed, and runs no more."""
    if evidence.requested is not None and evidence.requested in _REQUESTS:
        return ExitReport(reason=evidence.requested, message=_REQUESTS[evidence.requested])
    if not job.ended:
        message = "its job was requeued in Slurm, which has ended what ran of it; the job goes back to the queue"
        return ExitReport(reason=EndReason.PREEMPTED, message=message)
    reason, message = _BY_STATE[job.state]
    if not evidence.ran and job.state in {"FAILED", "COMPLETED"}:
        reason, message = EndReason.LAUNCH_FAILED, f"its batch job did not start ({job.state})"
    why = "" if job.reason in {"None", ""} else f" ({job.reason})"
    said = evidence.log.strip().splitlines()[-1:] if reason in {EndReason.LAUNCH_FAILED, EndReason.WORKER_LOST} else []
    return ExitReport(
        reason=reason,
        message=f"{message}{why}" + "".join(f": {line[:_QUOTED]}" for line in said),
        traceback=evidence.log if reason is EndReason.LAUNCH_FAILED and evidence.log else None,
    )


def gone(evidence: Evidence) -> ExitReport:
    """Returns the report of an attempt whose job Slurm no longer knows."""
    if evidence.requested is not None and evidence.requested in _REQUESTS:
        return ExitReport(reason=evidence.requested, message=_REQUESTS[evidence.requested])
    what = "has ended without a report" if evidence.ran else "was lost before it started"
    return ExitReport(reason=EndReason.WORKER_LOST, message=f"its job {what}: Slurm no longer knows it")
